"""Values: paths, texts, names, commands, addresses and whatever else a request may name. Many shapes, so that copying is
learned and no value is.

Start at Values. What always holds: everything follows from the random source that is given; `held` chooses words that
training never sees. Deliberately absent: meaning. A value is never guessed from, only copied.
"""

import re
from pathlib import Path

HERE = Path(__file__).parent

PLAIN = """account address album answer apple archive arrow artist autumn backup balance banana basket battery beach bicycle
bill bird blanket boat book border bottle branch bread bridge broker bucket budget build button cabin cable camera candle
canvas capital carbon carpet castle catalog center chair change chapter cheese cherry circle client clock cloud coffee
color column config copper corner cotton county credit crystal customer daily data deadline debug delivery demo desk
detail device diary dinner doctor dragon draft drawer dream driver eagle earth editor engine entry error event example
export fabric factory family farm feather fence field filter finance flag flower folder forest fork formula frame fruit
garden gate ghost glass global goal gold grape green group guide hammer harbor health history home honey hotel house idea
image index input island item january jacket journal july jungle key kitchen label ladder lake language laptop layer
leader leaf lemon lesson letter level library light limit line lion list local logic lunch machine magnet main manual map
market master matrix meadow measure meeting melon member memo menu message metal middle milk minute mirror model module
monday money monitor month moon morning motor mountain music name needle network news night north note number nurse ocean
offer office olive onion option orange orbit order output oven owner paint panel paper parcel partner party pencil people
pepper phone photo piano picture pilot pixel planet plan plant plate player pocket point poem policy pond port power
present price printer prize problem profile project public queue quiz rabbit radio rain recipe record region release
rent report result review ribbon river road robot rocket roof room rope rose route sailor salad salt sample sand school
schema screen script season second secret section server service shadow shop shore signal silver sister sketch snow
soap social song source south space spice spring square staff stage star state station status stone store storm story
street student style sugar summer sunday supper supply switch table target task tea team temple test theme ticket tiger
timer title today token tomato topic tower town track trade train travel tree trial trip truck tulip tunnel update user
vacation valley value vector vendor version video village violin visit voice wagon wallet water weather week wheel window
winter wood word work world writer yard year yellow zebra zone""".split()

FOREIGN = """über straße größe käse müller früh grün schön mädchen zürich äpfel brücke été garçon façade crème école forêt
naïve château español mañana niño corazón señor jalapeño año pingüino ação coração não maçã pão łódź żółw święto źródło
kraków jabłko žluťoučký kůň příliš český město čaj şehir çocuk ığdır güneş öğretmen smørrebrød blåbær århus sjö ångström
данные заметки отчёт привет мир письмо список молоко файл проект δοκιμή αρχείο καλημέρα кафе σημείωση 日本 東京 メモ 資料 報告
会议 笔记 你好 数据 文件 한국어 메모 보고서 שלום قائمة ملف नमस्ते ไทย tiếng việt ghi chú đường dữ liệu""".split()

NAMES = """alice bob carol dave eve frank grace heidi ivan judy mallory niaj olivia peggy rupert sybil trent victor walter
anna ben clara david emma felix greta hans ida jonas karl lena max nina otto paul rosa sara tom uwe vera willi yara zoe
worker scout planner writer tester builder reviewer coder clerk librarian cook gardener guard helper boss manager ops
support sales finance legal team backup monitor logger mailer indexer crawler parser runner watcher chef pilot
researcher editor coordinator dispatcher archivist""".split()

ROLES = """writer reader tester reviewer planner scout researcher proofreader librarian clerk summarizer editor builder
watcher checker translator analyst secretary accountant gardener chef teacher critic guide lawyer detective archivist
poet coder engineer painter messenger courier porter cleaner sorter counter collector inspector auditor""".split()
EXTENSIONS = "txt md json log csv py rs toml yaml yml html sh ini conf cfg xml js ts c h go java rst tex sql env bak dat".split()
TOP = "com org net io dev de fr info eu co.uk app local example".split()
UNITS = "metres miles kilometres pounds grams litres inches feet degrees celsius fahrenheit euros dollars hours".split()
LANGUAGES = """French German Spanish Italian English Latin Chinese Japanese Russian Polish Dutch Turkish Greek Arabic Hindi
Portuguese Swedish Danish Finnish Korean Klingon Esperanto""".split()
CITIES = """Paris Berlin London Rome Madrid Tokyo Vienna Oslo Lima Cairo Delhi Boston Munich Prague Warsaw Lisbon Athens
Dublin Zurich Milan Chicago Sydney Toronto Moscow Beijing Seoul Istanbul Nairobi Hamburg""".split()
TITLES = """Napoleon Einstein Shakespeare Mozart France Brazil the-moon the-Eiffel-Tower Everest Bitcoin Picasso Obama Batman
Cleopatra Australia the-Titanic Hamlet the-internet Tesla Google Mars gravity Pluto Newton Darwin the-Beatles Goethe
Columbus the-telephone penicillin Iceland Canada Spain Wikipedia Linux Gandhi Caesar Beethoven Zeus Poland a-whale
the-president the-universe the-queen Santa-Claus Messi the-Rhine Antarctica Greenland a-lion coffee""".split()
TOPICS = """quantum-physics cats my-holiday autumn love the-sea gardening machine-learning taxes the-French-revolution
photosynthesis chess democracy a-lonely-robot the-stock-market coffee climate-change football our-boss black-holes
dinosaurs my-grandmother cheese inflation blockchain a-talking-dog medieval-castles happiness the-weather space-travel
marketing friendship jazz a-dragon yoga vaccines electric-cars the-roman-empire children a-brave-knight pizza sleep
mathematics the-meaning-of-life rainbows birds a-cake a-guitar a-website houses bread the-brain volcanoes philosophy
the-human-heart war trains a-startup fashion bees computers a-garden dreams wine history money""".split()
KEYS = """favourite colour|birthday|phone number|wifi password|shoe size|office address|door code|favorite food|dentist|
account number|meeting room|project deadline|project name|server name|car plate|team lead|bank|boss's name|locker number|
printer address|blood type|middle name|license key|parking spot|flight number|hotel|tax number|time zone|gym code|
favourite song|doctor's name|cat's name|emergency contact|home town|member number|order number|ticket|user name|
coffee order|train|landlord|allergy|budget|standup time|release date|build number|default branch|mailing list|locker code|
customer|vendor|size|owner|version|port|host|status|price|deadline|room|email|nickname|school|hobby|street|insurance|
favourite film|sister's birthday|seat|alarm code|pin|age|weight|height|city|lunch place|shift|desk|plan|goal|motto
""".replace("\n", "").split("|")
TODOS = """water the plants|call the dentist|check the oven|take out the trash|write the report|feed the cat|look at the logs|
stand up|stretch|read the inbox|back up the notes|send the invoice|buy milk|check the server|drink water|review the plan|
go home|close the window|start the build|pay the rent|ask about the order|clean the desk|update the list|test the alarm|
turn off the stove|say hello|leave for the train|pick up the parcel|join the meeting|prepare lunch|check disk space|
rotate the logs|tidy the folder|renew the pass|walk the dog|wake up|pull the bread out|charge the phone|email the boss|
count the stock|collect the results|read status.txt|check the mail|post the letter|breathe""".replace("\n", "").split("|")
NATURAL = """the {p} is {a}|the {p} is not {a} yet|I will be {a} at {t}|see you at {t}|meet me in the {p}|buy {p} and {p}|the {p} failed again|
please call {w}|do not touch the {p}|{w} will bring the {p}|we need more {p}|the {p} for {w} is ready|{p} first, then {p}|call {w} back|
the {p} goes to {w}|hello {w}|hello world|hi there|good morning {w}|thank you for the {p}|the build is {a}|the tests pass|all done|it works|
lunch at {t}|{w} is on holiday|the {p} costs {m}|version {m} is out|{m} {p}s are left|the {p} and the {p} are {a}|to do: {p}|my {p} is {a}|
is the {p} {a}|where is the {p}|can you bring the {p}|I have {m} {p}s|remember the {p}|water the {p}|the server is {a}|deploy at {t}|
{w} said that the {p} is {a}|the {p} in the {p} is {a}|send the {p} to {w}|read the {p} in the {p}|put the {p} on the {p}|wait for {w}|
nothing new|everything is {a}|meeting moved to {t}|the {p} of {w}|from {w} to {w}|half of the {p}|a {a} {p}|ten {p}s for {w}|as {a} as a {p}|
the deadline is {t}|do it before {t}|no {p} today|the {p} must be {a}|{w} and {w}|yes, the {p}|{p} is {p}|I am on my way to the {p}""".replace("\n", "").split("|")
STATES = """ready late done broken green full empty open closed new old slow fast warm cold red free busy safe lost fixed missing
tired strange heavy great fine wrong good bad better quiet online offline""".split()
TIMES = "noon|9|5 pm|10:30|eight|midnight|half past six|tomorrow|monday|18:00|the weekend|3 o'clock|Friday".split("|")
SYLLABLES = "ba be bi bo bu da de di do ka ke ki ko la le li lo ma me mi mo na ne ni no pa pe po ra re ri ro sa se si so " \
            "ta te ti to va ve vi vo za ze zo an en in on ar er or al el il st tr br ch sh th ng ck qu x z y".split()
TOOLS = """ls cat grep echo python3 cargo git wc mkdir rm head sort tail sed awk find make npm node tar date uname whoami
printf touch cp mv chmod du df ps env true false sleep seq tr cut diff uniq tee xargs test expr basename dirname rustc gcc
pytest pip go bash sh hostname id pwd stat file md5sum sha256sum base64 jq curl""".split()

# Known words that do not join what stands around them.
JOINING = set("""that this with from into onto what which when where while then than them they there their have having been being were will would could should must
shall might after before once until upon your yours mine ours please also next last first finally followed afterwards thereafter just only""".split())
KNOWN = [word for word in (HERE / "words.txt").read_text().split() if len(word) >= 4 and word.islower() and word not in JOINING]
FEW_SHARE, FEW = .15, 8
# Natural ones, a line each; share of the values that are of these lists.
LISTS = ["texts", "bodies", "todos", "facts", "replacements", "stems", "folders", "commands", "jobs", "contexts", "afterthoughts"]
NATURAL_SHARE, CHANGED_SHARE = .5, .3


WRITTEN = {name: (HERE / "values" / f"{name}.txt").read_text().splitlines() for name in LISTS}


class Values:
    """Values from a random source."""

    def __init__(self, rng, held=False):
        self.rng, self.held = rng, held
        # Every eighth word of each list is for evaluation alone.
        self.plain, self.foreign, self.names, self.keys, self.todos, self.roles = (
            [word for nth, word in enumerate(words) if (nth % 8 == 3) == held]
            for words in (PLAIN, FOREIGN, NAMES, KEYS, TODOS, ROLES))
        self.lists = {name: [line for nth, line in enumerate(lines) if (nth % 8 == 3) == held] for name, lines in WRITTEN.items()}
        # Of few words the same come again, in one request and another value.
        if not held and rng.random() < FEW_SHARE:
            self.plain = rng.sample(self.plain, FEW)

    def chance(self, share):
        return self.rng.random() < share

    def pick(self, things):
        return self.rng.choice(things)

    def written(self, name):
        """One of a list; now and then with another word in it, so that none is known by heart."""
        text = self.pick(self.lists[name])
        places = [found.span() for found in re.finditer(r"(?<![\w'])[A-Za-z]{4,}(?![\w'])", text)]
        if places and self.chance(CHANGED_SHARE):
            begin, end = self.pick(places)
            other = self.word()
            text = text[:begin] + (other.capitalize() if text[begin].isupper() else other) + text[end:]
        return text

    def named(self, key):
        """A key as one that writes it for a machine may write it."""
        return key.replace("'s", "").replace("'", "").replace(" ", self.pick("___-")) if self.chance(.25) else key

    def replaced(self):
        """What stands in a file and what is to stand there."""
        if self.chance(NATURAL_SHARE):
            return tuple(self.written("replacements").split("|"))
        if self.chance(.3):
            # Both have something in common.
            same, signs = self.word() if self.chance(.6) else self.natural().rstrip(".!?"), [" ", " ", ": ", "=", " = "]
            sign, old, new = self.pick(signs), self.word(), self.word()
            return (same + sign + old, same + sign + new) if self.chance(.7) else (old + " " + same, new + " " + same)
        return tuple(self.word() if self.chance(.5) else self.simple() for _ in range(2))

    def todo(self):
        kind = self.rng.random()
        return self.pick(self.todos) if kind < .3 else self.written("todos") if kind < .7 else self.simple()

    # Words and texts

    def made_up(self):
        return "".join(self.pick(SYLLABLES) for _ in range(self.rng.randint(2, 4)))

    def word(self):
        kind = self.rng.random()
        # Any word that the tokenizer knows can be a part of a value too.
        if kind < .16 and not self.held:
            return self.pick(KNOWN)
        if kind < .5:
            return self.pick(self.plain)
        if kind < .75:
            return self.made_up()
        if kind < .82:
            return self.pick(self.foreign)
        if kind < .9:
            return "".join(self.pick("abcdefghijklmnopqrstuvwxyz") for _ in range(self.rng.randint(1, 7)))
        if kind < .96:
            return str(self.number())
        return "".join(self.pick("ABCDEFGHJKLMNPQRSTUVWXYZ0123456789abcdef") for _ in range(self.rng.randint(3, 12)))

    def cased(self, word):
        kind = self.rng.random()
        return word.capitalize() if kind < .2 else word.upper() if kind < .25 else word

    def number(self):
        return self.rng.randint(0, 10 ** self.rng.randint(1, 6))

    def words(self, low, high):
        return " ".join(self.word() for _ in range(self.rng.randint(low, high)))

    def sentence(self):
        """A line of prose with punctuation; small words stand in it as they do in requests."""
        small = "the a of to in and is for on with at from that it we you not this be are my our".split()
        words = [self.pick(small) if self.chance(.35) else self.word() for _ in range(self.rng.randint(2, 9))]
        text = " ".join(words)
        if self.chance(.5):
            text = text[0].upper() + text[1:]
        return text + self.pick(["", "", "", ".", "!", "?", "..."])

    def line(self):
        """One line of anything."""
        kind = self.rng.random()
        if kind < .2:
            return self.words(1, 2)
        if kind < .35:
            return self.natural()
        if kind < .6:
            return self.sentence()
        if kind < .7:
            return f"{self.word()}{self.pick([': ', '=', ' = ', ','])}{self.word()}"
        if kind < .76:
            return f"- {self.words(1, 4)}"
        if kind < .82:
            return self.date() + " " + self.words(1, 3)
        if kind < .86:
            return '{"' + self.word() + '": ' + self.pick([str(self.number()), f'"{self.word()}"', "true"]) + "}"
        if kind < .9:
            return f"{self.pick(['def', 'fn', 'let', 'if', '#', '//', 'import', 'return'])} {self.word()}{self.pick(['()', ';', ':', ' = 1', ''])}"
        if kind < .94:
            return self.url()
        if kind < .97:
            return self.words(1, 2) + ' "' + self.word() + '" ' + self.word()
        return self.pick(["✓ ", "→ ", "☕ ", "# ", "* ", "\t", "  ", "$ ", "100% ", "C:\\", "~/", "🚀 "]) + self.words(1, 2)

    def text(self, lines_max=5):
        """The content of a file."""
        return "\n".join(self.line() for _ in range(self.rng.randint(1, lines_max)))

    def simple(self):
        """Words that may stand unquoted in a sentence: none of them joins clauses."""
        text = self.words(1, 4) if self.chance(.6) else self.sentence().rstrip(".!?")
        return text.strip() or self.word()

    def natural(self):
        """A short plain sentence, as people write them; small words of requests stand in it."""
        if self.chance(.65):
            return self.written("texts")
        text = self.pick(NATURAL)
        for mark, make in (("{p}", lambda: self.pick(self.plain)), ("{a}", lambda: self.pick(STATES)), ("{t}", lambda: self.pick(TIMES)),
                           ("{w}", lambda: self.pick(self.names)), ("{m}", lambda: str(self.number()))):
            while mark in text:
                text = text.replace(mark, make(), 1)
        return text[0].upper() + text[1:] if self.chance(.4) else text

    def date(self):
        date = (self.rng.randint(1990, 2030), self.rng.randint(1, 12), self.rng.randint(1, 28))
        return self.pick(["{0}-{1:02}-{2:02}", "{2}.{1}.{0}", "{1}/{2}/{0}", "{0}{1:02}{2:02}"]).format(*date)

    # Names of things

    def stem(self):
        if self.chance(.4):
            return self.written("stems")
        kind = self.rng.random()
        if kind < .45:
            return self.cased(self.word())
        if kind < .8:
            return self.pick(["_", "-", "", "."]).join(self.word() for _ in range(2))
        if kind < .87:
            return self.word() + str(self.rng.randint(0, 99))
        if kind < .94:
            return f"{self.word()}-{self.date().replace('/', '-')}"
        return "-".join(self.word() for _ in range(3))

    def name(self):
        """The name of a file, without folders and blanks."""
        kind = self.rng.random()
        if kind < .86:
            return f"{self.stem()}.{self.pick(EXTENSIONS)}"
        if kind < .9:
            return "." + self.word() + self.pick(["", "rc", ".json"])
        if kind < .94:
            return f"{self.stem()}.{self.pick(EXTENSIONS)}.{self.pick(['gz', 'bak', 'old', 'tmp', '1'])}"
        if kind < .97:
            return f"{self.stem()}.{self.made_up()[:4]}"
        return self.pick(["Makefile", "README", "LICENSE", "Dockerfile", "TODO", "CHANGELOG", "NOTES", "VERSION", "AUTHORS", "motd", "Gemfile", "Procfile", "COPYING",
                          "hosts", "crontab", "INSTALL", "notes", "todo", "log", "Justfile", "OWNERS", self.made_up(), self.plain[0].upper()])

    def folder(self):
        """A folder, without a slash at its end."""
        if self.chance(.4):
            return self.written("folders")
        names = [self.stem() if self.chance(.3) else self.word() for _ in range(self.pick([1, 1, 1, 2, 2, 3]))]
        return "/".join(names)

    def path(self):
        kind = self.rng.random()
        name = self.name()
        if kind < .6:
            return name
        if kind < .9:
            return f"{self.folder()}/{name}"
        if kind < .94:
            return f"./{name}"
        if kind < .97:
            return f"/{self.pick(['etc', 'tmp', 'home', self.word()])}/{name}"
        return f"../{name}"

    def spaced(self):
        """A path with blanks, which must be quoted."""
        name = f"{self.words(1, 2)} {self.word()}.{self.pick(EXTENSIONS)}"
        return f"{self.word()}/{name}" if self.chance(.2) else name

    def who(self):
        name = self.pick(self.names) if self.chance(.6) else self.made_up()
        kind = self.rng.random()
        if kind < .15:
            return f"{name}-{self.rng.randint(1, 30)}"
        return name.capitalize() if kind < .4 else f"{name}_{self.word()}" if kind < .45 else name

    def pair(self):
        """What a memory is about, and what is remembered of it."""
        if self.chance(NATURAL_SHARE):
            key, value = self.written("facts").split("|")
            return self.named(key), value
        return self.key(), self.value()

    def key(self):
        """What a memory is about."""
        if self.chance(.4):
            return self.named(self.written("facts").split("|")[0])
        kind = self.rng.random()
        if kind < .5:
            return self.pick(self.keys)
        if kind < .8:
            return self.words(1, 2)
        return f"{self.word()}{self.pick(['_', '-', ' of '])}{self.word()}"

    def value(self):
        """What is remembered of it."""
        if self.chance(.3):
            return self.written("facts").split("|")[1]
        kind = self.rng.random()
        if kind < .35:
            return self.cased(self.word())
        if kind < .6:
            return self.words(2, 4)
        if kind < .7:
            return str(self.number())
        if kind < .8:
            return self.date()
        if kind < .85:
            return f"{self.word()}@{self.word()}.{self.pick(TOP)}"
        if kind < .9:
            return f"{self.rng.randint(0, 23)}:{self.rng.randint(0, 59):02}"
        if kind < .95:
            return f"+{self.rng.randint(1, 99)} {self.rng.randint(100, 999)} {self.rng.randint(1000, 99999)}"
        return self.path()

    def url(self):
        host = f"{self.pick(['', '', 'www.', 'api.'])}{self.word_ascii()}.{self.pick(TOP)}"
        if self.chance(.15):
            host = self.pick(["localhost", "127.0.0.1", "10.0.0.7"]) + f":{self.rng.randint(80, 9999)}"
        url = f"{self.pick(['http', 'https', 'https'])}://{host}"
        for _ in range(self.pick([0, 0, 1, 1, 2, 3])):
            url += "/" + self.word_ascii()
        kind = self.rng.random()
        if kind < .2:
            url += self.pick([".html", ".json", ".txt", "/"])
        elif kind < .3:
            url += f"?{self.word_ascii()}={self.word_ascii()}"
        return url

    def word_ascii(self):
        word = self.word()
        return word if word.isascii() else self.made_up()

    def command(self):
        """A command line as one would write it."""
        if self.chance(.4):
            return self.written("commands")
        command = self.pick(TOOLS) if self.chance(.85) else "./" + self.word_ascii() + self.pick(["", ".sh"])
        for _ in range(self.pick([0, 1, 1, 2, 2, 3])):
            kind = self.rng.random()
            if kind < .3:
                command += " -" + self.pick("abcdehlnrxvfsu") + self.pick(["", "", "l", "h"])
            elif kind < .38:
                command += " --" + self.word_ascii()
            elif kind < .7:
                command += " " + self.name()
            elif kind < .8:
                command += " " + str(self.rng.randint(0, 999))
            else:
                command += " " + self.word()
        kind = self.rng.random()
        if kind < .07:
            command += f" | {self.pick(TOOLS)}" + self.pick(["", " -l", " -n 5"])
        elif kind < .1:
            command += f" > {self.name()}"
        elif kind < .13:
            command += f" && {self.pick(TOOLS)} {self.word()}"
        return command

    def clean_command(self):
        """A command without anything that ends a clause; may stand unquoted."""
        while True:
            command = self.command()
            if not any(mark in command for mark in "|&>;"):
                return command

    # What lies outside

    def topic(self):
        return self.pick(TOPICS).replace("-", " ") if self.chance(.7) else self.words(1, 2)

    def title(self):
        return self.pick(TITLES).replace("-", " ") if self.chance(.7) else self.cased(self.made_up())

    def sum(self):
        sign = self.pick(["+", "-", "*", "/", "plus", "minus", "times", "divided by", "x", "modulo", "to the power of"])
        a, b = self.rng.randint(0, 999), self.rng.randint(0, 99)
        return f"{a}{sign}{b}" if len(sign) == 1 and self.chance(.4) else f"{a} {sign} {b}"

    def gibberish(self):
        return "".join(self.pick("asdfghjklqwertzuiopyxcvbnm") for _ in range(self.rng.randint(3, 9)))
