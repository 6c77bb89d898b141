"""Function words of languages: those that say nothing about the subject of a text or a question.

They are neither counted nor searched for, and they show which language a text is in. Words of
Chinese, Japanese and Thai are pairs of characters, as those languages are indexed.
"""

# ruff: noqa: RUF001, E501

from functools import cache

from longctx.core.tokens.normal_form import folded

_WORDS = {
    "ar": "في من على إلى عن مع هذا هذه ذلك تلك التي الذي الذين ما ماذا متى أين كيف لماذا هل كم أن إن أو ثم لا لم لن قد كان كانت يكون هو هي هم نحن أنا بعد قبل كل بين حتى عند غير إذا كما لكن و يا أي أيضا فيه فيها منه له لها به بها حيث",
    "ca": "el la els les un una uns unes de del dels a al als en amb per i o que qui què quan com on quin quina quins quines és són era eren ha han hi no ja més molt molts també però si es seu seva seus seves aquest aquesta aquests aquestes això sense entre fins des perquè quant l d s n m t",
    "cs": "a i v ve na s se z ze do o k ke u po za pro od že jak jako co kdo kdy kde proč který která které kteří byl byla bylo byli je jsou jsem jste jsme být bude si to ten ta tento tato toto tím tom jeho její jejich ale nebo ani už jen když by aby protože není kolik",
    "da": "og i at det den de en et er var som på til med for af fra har havde han hun jeg vi du ikke om der men eller sig så hvad hvem hvor hvornår hvorfor hvordan hvilken hvilket hvilke kan kunne skal skulle vil ville blev bliver være været efter over under ved også end når da hans hendes deres sin sit sine dette denne disse her nu op ud mange meget alle",
    "de": "der die das den dem des ein eine einer eines einem einen und oder aber nicht kein keine keinen in im an am auf aus bei mit nach von vom zu zum zur für über unter um durch gegen ohne vor als wie wenn dass daß ob weil denn ist sind war waren wird werden wurde wurden worden hat haben hatte hatten sein bin kann können konnte muss müssen soll sollte will ich du er sie es wir ihr mich mir ihm ihn ihnen uns sich mein dein seine seiner seinem seinen seines ihre ihrer ihrem ihren ihres dieser diese dieses diesem diesen jener was wer wen wem wessen wann wo wohin woher warum wieso welche welcher welches welchem welchen wieviel viele so da dort hier dann nun noch nur auch schon sehr mehr man bis",
    "el": "ο η το οι τα του της των τον την τους τις ένα μια ένας και κι ή αλλά δεν δε μη μην να θα με σε στο στη στον στην στα στους στις από για προς κατά μετά πριν χωρίς που πως πώς πού πότε ποιος ποια ποιο ποιοι ποιες γιατί τι πόσο πόσα πόσες όταν αν είναι ήταν έχει έχουν είχε αυτό αυτή αυτός αυτά αυτές του μου σου μας σας εγώ εσύ όπως ότι ως πολύ πιο μόνο",
    "en": "a about all also am an and any are aren as at be because been before being but by did didn do does doesn doing don each every for from had has hasn have haven having he her hers him his how i if in into is isn it its itself just ll many me more most much my no nor not of on only or other our ours out over own re s same she so some such t than that the their theirs them themselves then there these they this those through to too under until up upon very ve was wasn we what when where whether which while who whom whose why will with won you your yours",
    "es": "el la los las un una unos unas de del a al en con por para sin sobre entre y e o u ni que qué quién quien quiénes cuál cuáles cuándo cuando cómo como dónde donde cuánto cuántos cuánta cuántas es son era eran fue fueron ser está están estaba ha han había hay no sí ya más muy también pero si se su sus le les lo me te nos mi tu este esta estos estas ese esa eso esto aquel aquella desde hasta porque cada todo toda todos todas después antes él ella ellos ellas yo",
    "et": "ja ei on oli olid see seda selle sellest ta tema nad nende ma mina me meie sa te kes mis mida kus millal miks kuidas milline millised mitu kui et aga või ning ka oma siis veel juba nii pärast enne ilma kuni üle alla vastu iga kõik mitte pole olla",
    "eu": "eta edo ez da dira zen ziren du dute zuen zuten bat batek hau hori hura hauek horiek nor zer non noiz nola zergatik zein zenbat baina ere bere beren izan dela dago daude baino gabe arte oso gero",
    "fa": "و در به از که این آن با را برای است بود شد می‌شود یک تا بر هم یا اما اگر نه هر چه کی کجا چرا چگونه چند کدام آنها او ما شما من خود کرد کرده شده باشد دارد داشت همه نیز پس پیش",
    "fi": "ja on ei oli ovat olivat että se sen siitä sitä hän hänen he heidän minä me te sinä joka jotka jonka jota kuka mikä mitä missä milloin miksi miten kuinka mihin mistä millainen kun jos mutta tai sekä myös niin vain kuin jo vielä nyt tämä tämän tätä nämä niiden hyvin ennen jälkeen ilman kanssa olla ollut olisi",
    "fr": "le la les un une des de du d l au aux à en dans par pour sur sous sans avec entre vers chez et ou mais ni que qu qui quoi quel quelle quels quelles quand comment où pourquoi combien est sont était étaient être été a ont avait avaient ai as avoir fut il elle ils elles on je j tu nous vous me m te t se s lui leur leurs son sa ses mon ma mes ton ta tes notre votre ce c cet cette ces cela ça ne n pas plus si comme tout tous toute toutes y très aussi même après avant donc",
    "ga": "an na agus is ní tá bhí raibh go ar ag le do de ó i sa san as atá nach sé sí siad é í iad mé tú cé cad cá conas cathain cén nuair ach nó sin seo mar a chun faoi roimh tar éis aon gach",
    "he": "של את על אל עם לא הוא היא הם הן זה זאת זו אני אנחנו אתה כי אם או גם כל מה מי מתי איפה היכן איך למה מדוע כמה איזה איזו אשר היה היתה הייתה היו יש אין אך אבל רק עוד כבר מן בין לפני אחרי עד כמו",
    "hi": "का के की को में से पर ने है हैं था थी थे और या एक यह वह ये वे इस उस इन उन जो कि कौन क्या कब कहाँ कहां कैसे क्यों कितने कितना कितनी किस किसने नहीं भी तो ही हो होता होती होते गया गई गए कर करने लिए साथ बाद तक अपने अपनी अपना मैं हम तुम आप",
    "hu": "a az egy és vagy de nem is hogy ha mint meg van volt voltak lesz ki kit mi mit mikor hol hova honnan hogyan miért melyik milyen hány mennyi ez ezt azt ezek azok ő ők én te mi ti még már csak után előtt nélkül között által minden nagyon fel el be le",
    "hy": "և եւ է են էր էին մի որ որը որոնք ով ինչ երբ որտեղ ինչու ինչպես քանի որքան այս այդ այն նա նրա նրանք ես մենք դու իր իրենց չէ ոչ էլ բայց կամ թե եթե մեջ վրա համար հետ մինչև",
    "id": "yang dan di ke dari untuk pada dengan adalah itu ini tidak akan oleh dalam sebagai juga atau telah sudah dapat bisa karena ada mereka dia ia saya kami kita anda siapa apa kapan mana bagaimana mengapa berapa tetapi tapi jika agar lebih sangat hanya antara setelah sebelum sampai para sebuah seorang bukan",
    "it": "il lo la i gli le un uno una di del dello della dei degli delle a al allo alla ai agli alle da dal dalla dai dalle in nel nello nella nei negli nelle con su sul sulla sui sulle per tra fra e ed o ma non che chi cosa quale quali quando come dove perché quanto quanta quanti quante è sono era erano essere stato stata ha hanno aveva avevano ho si se ci ne mi ti vi lui lei loro io noi voi suo sua suoi sue questo questa questi queste quello quella quelli quelle più anche molto già dopo prima l d c dell all dall nell sull un",
    "ja": "です ます まし した して てい いる いた ある あり この その あの これ それ どの どこ いつ だれ なに なぜ どう ので から まで には では とは のは のを のが こと もの よう とし され れた れる てき ない",
    "ko": "습니 니다 입니 있는 있다 하는 하고 했다 한다 에서 으로 이다 무엇 누가 누구 언제 어디 어떻 떻게 얼마 까지 부터 그리 리고 것은 것이 것을",
    "lt": "ir yra buvo kad tai ne ar bet arba su į iš ant per prie nuo iki po be už apie kas ką kam kur kada kaip kodėl kuris kuri kurie kiek jis ji jie jos aš mes jūs jo jų šis ši šie tas ta tie taip pat jau dar tik labai būti savo",
    "ne": "को का की मा ले लाई बाट र हो छ छन् थियो थिए यो त्यो यी ती के को कसले कहाँ कहिले किन कसरी कति पनि तर वा भने गरेको गर्न भएको एक उनी उनको मेरो हामी",
    "nl": "de het een en of maar niet geen in op aan bij met van voor naar uit over onder door om te tot tegen zonder is zijn was waren wordt worden werd werden heeft hebben had hadden kan kunnen kon moet zal zou dat die dit deze er hij zij ze het ik je we wij u hem haar hun mijn zich als dan toen nog ook al wel meer zo wie wat wanneer waar waarom hoe welke welk hoeveel veel wiens na omdat t s",
    "no": "og i at det den de en et ei er var som på til med for av fra har hadde han hun jeg vi du ikke om der men eller seg så hva hvem hvor når hvorfor hvordan hvilken hvilket hvilke kan kunne skal skulle vil ville ble blir være vært etter over under ved også enn da hans hennes deres sin sitt sine dette denne disse her nå opp ut mange mye meget alle",
    "pl": "i w we z ze na do o od po za przez dla przy jak jako co kto kogo kiedy gdzie dlaczego który która które którzy którego czy ile jaki jaka jakie był była było byli jest są być będzie nie to ten ta te tego tym tej się ale lub oraz a że gdy już tylko jego jej ich on ona oni ja my bardzo aby ponieważ także",
    "pt": "o a os as um uma uns umas de do da dos das em no na nos nas ao à aos às por pelo pela pelos pelas para com sem sobre entre e ou mas que quem qual quais quando como onde porque porquê quanto quantos quanta quantas é são era eram foi foram ser está estão estava tem têm tinha há não sim já mais muito também se seu sua seus suas lhe lhes me te eu ele ela eles elas nós este esta estes estas esse essa isso isto aquele aquela até depois antes",
    "ro": "și în la de pe cu din pentru prin până fără despre un o unui unei cel cea cei cele al ai ale a este sunt era erau fost fi are au avea nu da ce cine când unde cum care căruia cât câți câte să se își îi îl ei el ea eu noi voi lui lor său sa acest această acesta aceasta aceste mai foarte dar sau dacă după înainte nici doar",
    "ru": "и в во на с со к ко о об от до по за из у для при без через над под между не ни но а или что чтобы кто кого кому чем когда где куда откуда как почему зачем какой какая какое какие который которая которое которые сколько чей это этот эта эти этого этой того тот та те то он она оно они я ты мы вы его её ее их ему ей им меня мне нас вас себя свой свою своей был была было были есть быть будет же ли бы ещё еще уже так только там тут если после перед очень все всё всех",
    "sr": "и у на је су се да не од за са из до по о али или као што који која које ко шта кад када где како зашто колико био била било били бити ће он она они ја ми ви то та тај овај ова ово његов њен њихов само још већ i u na je su se da ne od za sa iz do po ali ili kao što koji koja koje ko šta kad kada gde kako zašto koliko bio bila bilo bili biti će ovaj ova ovo njegov njen njihov samo još već",
    "sv": "och i att det den de en ett är var som på till med för av från har hade han hon jag vi du inte om där men eller sig så vad vem vilka vilken vilket när varför hur kan kunde ska skall skulle vill ville blev blir vara varit efter över under vid också än då hans hennes deras sin sitt sina detta denna dessa här nu upp ut många mycket alla utan genom mot",
    "ta": "ஒரு என்று இந்த அந்த அது இது அவர் அவன் அவள் அவர்கள் நான் நாம் என்ன யார் எப்போது எங்கே எப்படி ஏன் எத்தனை எந்த உள்ள மற்றும் ஆனால் அல்லது இல்லை இருந்து மேலும் வரை பின் முன் ஆகும் என",
    "tr": "ve bir bu şu o da de ki ile için gibi kadar daha çok en mi mı mu mü ne kim kime nerede nereye neden niçin nasıl hangi kaç zaman değil var yok ama fakat veya ya eğer olarak olan oldu olduğu idi ise her hiç sonra önce onun onlar ben biz siz sen bana bunu diye",
    "uk": "і й та в у на з із зі до від по за для при без про через над під між не ні але або що щоб хто кого коли де куди звідки як чому який яка яке які котрий скільки чий це цей ця ці цього того той він вона воно вони я ти ми ви його її їх йому їй мене мені нас себе свій свою був була було були є бути буде же чи би б ще вже так тільки там тут якщо після перед дуже все всіх",
    "vi": "và của là có không được trong cho với các những một này đó khi người từ đến ở ra vào như về đã đang sẽ cũng rất nhưng hoặc nếu vì ai gì đâu nào sao bao nhiêu tại thì mà bởi theo trên dưới sau trước",
    "zh": "什么 甚麼 什麼 怎么 怎麼 么样 多少 哪里 哪裡 哪个 哪些 为什 为何 是否 何时 我们 他们 她们 这个 那个 这些 那些 因为 所以 但是 以及 或者 可以 没有 一个 的是 了一",
}  # fmt: skip
LANGUAGES = tuple(_WORDS)


@cache
def function_words(language: str) -> frozenset[str]:
    """The function words of a language, folded; those of English where it is not known.

    Args:
        language: ISO 639-1 code, or "" for unknown.
    """
    return frozenset(map(folded, _WORDS.get(language, _WORDS["en"]).split()))
