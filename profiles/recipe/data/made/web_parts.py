"""What web logs are made of: results, programs of visitors, and pages. Data only."""

STATES = {  # what a request comes to, with status codes
    "fine": ["200", "200", "200", "206"],
    "unchanged": ["304"],
    "moved": ["301", "302"],
    "refused": ["403", "403", "401"],
    "missing": ["404", "404", "410"],
    "broken": ["500", "502", "503", "504"],
}
IN_OTHER_WORDS = {"page", "sort", "state"}  # fields that no line says literally
WEIGHTS = [60, 6, 5, 7, 9, 5]
TOOLS = ["curl", "Wget", "python-requests", "Go-http-client", "okhttp", "libwww-perl", "aria2"]
BROWSERS = [
    ("Mozilla/5.0 (X11; Linux x86_64; rv:{v}) Gecko/20100101 Firefox/{v}", "Firefox"),
    ("Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:{v}) Gecko/20100101 Firefox/{v}", "Firefox"),
    (
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
        "Chrome/{v} Safari/537.36",
        "Chrome",
    ),
    ("Opera/9.80 (Windows NT 6.1) Presto/2.12 Version/{v}", "Opera"),
    ("Mozilla/5.0 (compatible; {n}Bot/{v}; +https://{d}/bot.html)", "{n}Bot"),
    ("{n}Reader/{v} ({d})", "{n}Reader"),
    ("{n}-monitor/{v}", "{n}-monitor"),
]

PAGES = [  # path; what people call it; what they call all of its sort
    ("/{folder}/{adj}-{noun}.pdf", "the PDF about the {adj} {noun}", "the PDF"),
    ("/img/{adj}_{noun}.jpg", "the picture of the {adj} {noun}", "the picture"),
    ("/files/{noun}-{folder}.zip", "the {noun} {folder} archive", "the archive"),
    ("/{noun}/{adj}.html", "the {adj} page about the {noun}", ""),
    ("/{noun}-admin/{folder}", "the {folder} page of the {noun} administration", "the admin page"),
    ("/{noun}/login", "the {noun} login", "the login page"),
    ("/{adj}-{noun}/feed.xml", "the feed of the {adj} {noun}", "the feed"),
    ("/api/{noun}/{number}", "{noun} number {number} of the API", "the API"),
    ("/shop/{noun}?id={number}", "{noun} {number} in the shop", "something in the shop"),
    ("/backup/{adj}-{noun}.sql", "the backup of the {adj} {noun} database", "the database backup"),
    ("/video/{noun}_{folder}.mp4", "the video of {noun} and {folder}", "the video"),
    ("/{folder}/{noun}/settings", "the {noun} settings of the {folder}", "the settings page"),
    ("/{noun}/prices-{number}.xlsx", "price list {number} of the {noun}", "the price list"),
    ("/{folder}/search?q={adj}+{noun}", "a search for a {adj} {noun}", "a search"),
    ("/music/{adj}-{noun}.mp3", "the song of the {adj} {noun}", "the song"),
    ("/forum/{noun}/thread-{number}", "thread {number} about the {noun}", "the forum"),
    ("/{noun}/contact-{folder}", "the {folder} contact form of the {noun}", "the contact form"),
    ("/maps/{folder}/{noun}.svg", "the map of the {noun} at the {folder}", "the map"),
    ("/.{noun}/config-{folder}", "the hidden {noun} configuration of the {folder}", ""),
]
