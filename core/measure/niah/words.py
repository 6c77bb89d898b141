"""Words to make needles of; no word is part of another word in the same list."""


def _words(text: str) -> list[str]:
    return text.split()


CITIES = _words(
    "Aalborg Aarhus Adelaide Albany Aleppo Algiers Almaty Amman Amsterdam Ankara Antwerp Asmara "
    "Athens Auckland Augsburg Baku Bangkok Barcelona Basel Beirut Belfast Belgrade Bergamo Bergen "
    "Berlin Bogota Bologna Bordeaux Boston Bratislava Bremen Brisbane Bristol Brno Brussels "
    "Bucharest Budapest Cairo Calgary Canberra Caracas Cardiff Chicago Cologne Copenhagen Cordoba "
    "Cusco Dakar Dallas Damascus Denver Detroit Dhaka Dresden Dublin Edinburgh Florence Frankfurt "
    "Galway Gdansk Geneva Genoa Ghent Glasgow Gothenburg Granada Graz Grenoble Halifax Hamburg "
    "Hanoi Harare Havana Helsinki Honolulu Houston Innsbruck Istanbul Izmir Jakarta Jerusalem "
    "Kabul Kampala Karachi Kathmandu Kiel Kigali Kingston Kobe Krakow Kyoto Lagos Lahore Lausanne "
    "Leeds Leipzig Lille Lisbon Liverpool Ljubljana London Luanda Lusaka Luxembourg Lyon Madrid "
    "Malmo Managua Manila Maputo Marseille Melbourne Memphis Milan Minsk Montreal Moscow Mumbai "
    "Munich Nagoya Nairobi Nantes Naples Nashville Odessa Osaka Oslo Ottawa Oxford Palermo Perth "
    "Porto Prague Quebec Quito Rabat Reykjavik Riga Rotterdam Salzburg Santiago Sarajevo Seattle "
    "Seoul Seville Shanghai Sheffield Singapore Sofia Stockholm Stuttgart Sydney Tallinn Tampere "
    "Tashkent Tbilisi Tehran Tirana Tokyo Toledo Toronto Toulouse Trieste Tripoli Tromso Tunis "
    "Turin Uppsala Utrecht Valencia Vancouver Venice Vienna Vilnius Warsaw Wellington Windhoek "
    "Yerevan Zagreb Zurich"
)
COLOURS = _words(
    "amber black blue brown copper cream crimson golden green grey ivory orange pink purple red "
    "rusty scarlet silver violet white yellow"
)
ANIMALS = _words(
    "badger beaver camel crane donkey eagle falcon ferret goose heron lizard monkey otter parrot "
    "pigeon rabbit salmon sparrow tiger turtle walrus weasel wolf zebra"
)
THINGS = _words(
    "anchor barrel basket bottle bucket button candle carpet chair compass curtain drum engine "
    "hammer kettle ladder lantern mirror needle pencil pillow ribbon saddle spoon teapot violin "
    "wagon window"
)
FIRST_NAMES = _words(
    "Agnes Albert Alice Arthur Clara Daniel Edith Edmund Emma Ernest Fiona George Grace Harold "
    "Helen Hugo Irene Julia Kenneth Laura Martin Nora Oliver Patrick Ruth Simon Stella Thomas "
    "Ursula Victor"
)
LAST_NAMES = _words(
    "Archer Baxter Bennett Carter Dawson Ellison Fletcher Gardner Hawkins Hudson Jenkins Keller "
    "Lambert Lawson Marshall Norton Osborne Palmer Preston Ramsey Saunders Sheldon Thornton "
    "Turner Vaughan Walton Watkins Webster Whitaker Winslow"
)
MONTHS = _words(
    "January February March April May June July August September October November December"
)
