"""The words for times in the languages that questions are asked in, without accents, lower case."""

from __future__ import annotations

_MONTHS = """
january janvier januar janner enero
february fevrier februar febrero
march mars marz maerz marzo
april avril abril
may mai mayo
june juin juni junio
july juillet juli julio
august aout agosto
september septembre septiembre
october octobre oktober octubre
november novembre noviembre
december decembre dezember diciembre
"""
MONTHS = {word: at for at, line in enumerate(_MONTHS.split("\n")) for word in line.split()}
SHORT_MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "sept": 9, "oct": 10, "okt": 10,
    "nov": 11, "dec": 12, "dez": 12,
}  # fmt: skip
"""Words only beside a day or a year, for most are other words too."""

CERTAIN_MONTHS = frozenset(
    """
january janvier januar enero february fevrier februar febrero marz maerz marzo avril juin juillet julio
september septembre septiembre october octobre oktober octubre november novembre noviembre december decembre dezember
diciembre july
""".split()
)
"""Months that are hardly ever anything else, so that they count without a word before them."""

PICKY_MONTHS = {
    "mars": frozenset({"en", "depuis", "avant", "apres", "entre", "de", "debut", "mi", "fin", "mois"}),
    "mayo": frozenset({"en", "desde", "hasta", "de", "entre", "antes", "despues"}),
}
"""Months that another language takes for something else, with the words that may stand before them."""

_WEEKDAYS = """
monday montag lundi lunes
tuesday dienstag mardi martes
wednesday mittwoch mercredi miercoles
thursday donnerstag jeudi jueves
friday freitag vendredi viernes
saturday samstag sonnabend samedi sabado
sunday sonntag dimanche domingo
"""
WEEKDAYS = {word: at for at, line in enumerate(_WEEKDAYS.strip().split("\n")) for word in line.split()}
SHORT_WEEKDAYS = {"mon": 0, "tue": 1, "tues": 1, "wed": 2, "thu": 3, "thur": 3, "thurs": 3, "fri": 4}
"""With a capital, after ``on`` or ``last`` only; ``sat`` and ``sun`` are too much else."""

SEASONS = {
    "spring": "spring", "summer": "summer", "autumn": "autumn", "fall": "autumn", "winter": "winter",
    "fruhling": "spring", "fruhjahr": "spring", "sommer": "summer", "herbst": "autumn",
    "printemps": "spring", "automne": "autumn", "hiver": "winter",
    "primavera": "spring", "verano": "summer", "otono": "autumn", "invierno": "winter",
}  # fmt: skip
# French "ete" (summer) is also "been", so it counts with a year only.
SEASONS_WITH_YEAR = {**SEASONS, "ete": "summer"}

FEASTS = {
    "christmas": "christmas", "xmas": "christmas", "weihnachten": "christmas", "noel": "christmas",
    "navidad": "christmas", "easter": "easter", "ostern": "easter", "paques": "easter", "pascua": "easter",
    "halloween": "halloween", "thanksgiving": "thanksgiving", "valentine's day": "valentine",
    "valentines day": "valentine", "new year's eve": "new year's eve", "new years eve": "new year's eve",
    "silvester": "new year's eve", "new year's day": "new year", "new year's": "new year", "new year": "new year",
    "neujahr": "new year",
}  # fmt: skip

NUMBERS = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "eleven": 11, "twelve": 12, "a couple of": 2, "a couple": 2, "couple of": 2, "couple": 2, "an": 1, "a": 1,
    "ein": 1, "eine": 1, "einem": 1, "einer": 1, "einen": 1, "zwei": 2, "drei": 3, "vier": 4, "funf": 5, "sechs": 6,
    "sieben": 7, "acht": 8, "neun": 9, "zehn": 10, "un": 1, "une": 1, "deux": 2, "trois": 3, "quatre": 4, "cinq": 5,
    "sept": 7, "huit": 8, "neuf": 9, "dix": 10, "una": 1, "dos": 2, "tres": 3, "cuatro": 4, "cinco": 5, "seis": 6,
    "siete": 7, "ocho": 8, "nueve": 9, "diez": 10,
}  # fmt: skip
FEW = frozenset(
    {"a few", "few", "several", "ein paar", "einigen", "wenigen", "quelques", "unos", "unas", "pocos", "pocas"}
)
CHINESE_NUMBERS = {
    word: at for at, word in enumerate("一 二 三 四 五 六 七 八 九 十 十一 十二".split(), 1)
} | {"两": 2, "兩": 2}  # fmt: skip

UNITS = {
    "minute": "minute min minutes mins minuten minutos minuto",
    "hour": "hour hours stunde stunden heure heures hora horas",
    "day": "day days tag tage tagen jour jours dia dias",
    "week": "week weeks woche wochen semaine semaines semana semanas",
    "month": "month months monat monate monaten mois mes meses",
    "quarter": "quarter quarters quartal quartale quartalen trimestre trimestres",
    "year": "year years jahr jahre jahren an ans annee annees ano anos",
    "weekend": "weekend week-end wochenende",
}
UNIT_OF = {word: name for name, words in UNITS.items() for word in words.split()}

DAY_WORDS = {
    "day before yesterday": -2, "vorgestern": -2, "avant-hier": -2, "anteayer": -2, "antier": -2,
    "yesterday": -1, "gestern": -1, "hier": -1, "ayer": -1,
    "today": 0, "heute": 0, "aujourd'hui": 0, "hoy": 0,
}  # fmt: skip
DAY_PARTS = {
    "morning": "morning", "afternoon": "afternoon", "evening": "evening", "night": "night",
    "fruh": "morning", "morgen": "morning", "vormittag": "morning", "nachmittag": "afternoon", "abend": "evening",
    "nacht": "night", "matin": "morning", "apres-midi": "afternoon", "soir": "evening", "nuit": "night",
    "por la manana": "morning", "por la tarde": "afternoon", "por la noche": "night",
}  # fmt: skip

PARTS = {
    "early": "early beginning start begin anfang beginn debut principios comienzos",
    "mid": "mid middle mitte mi milieu mediados",
    "late": "late end ende fin finales",
}
PART_OF = {word: name for name, words in PARTS.items() for word in words.split()}

CONTEXT = frozenset(
    """
in during since until till before after around between throughout through within circa by of from
im seit bis vor nach zwischen ab um gegen wahrend des
en depuis avant apres entre vers courant mois
desde hasta durante hacia
""".split()
)
"""Words before a month or a year that make a time of it."""

AFTERWARDS = frozenset(
    """
a about after all also an and any are as at because been before between but by can could did do does during every for
from had has have he her his how i if in into is it its me my no of on or our she should since so that the their them
then there they this those to under until was we were what when where which while who why will with without would you
your
aber als am an auf aus bei da das dass der die doch du ein eine er es fur gab habe haben hat hatte hatten ich ihr im ist
mit nach nicht oder sich sie sind so uber um und uns vom von war waren warum was wer wie wir wo wurde zu zum zur
au aux avec ce dans des elle est et il ils je la le les mais nous ou par pour que qui quoi se sont sur tu un une vous
con de del el ella ellos en era eran es esta fue fueron ha han la los las lo o para pero por que se sobre un una y yo
""".split()
)
"""Words that may follow a year or a day without making a number of things out of it."""

FRENCH = frozenset(
    """
le la les est que qui nous avons ai des du un une dans pour pas je il elle vous avec fait dit parle avait etait sur et
quoi quel quelle comment c'est j'ai qu'est-ce soir matin a-t-on on
""".split()
)
GERMAN = frozenset(
    """
der die das ist was wir ich nicht und ein eine haben habe wo wie steht sind gibt von mit auf bei zu den dem es war
warum welche welcher
""".split()
)

# A word of every rule, so that a question without any is done at once.
CUES = frozenset(
    [*MONTHS, *SHORT_MONTHS, *WEEKDAYS, *SHORT_WEEKDAYS, *SEASONS_WITH_YEAR, *UNIT_OF, *DAY_WORDS]
    + [word.split()[0].partition("'")[0] for word in FEASTS]
    + "yesterday aujourd avant week tonight morning afternoon evening night nacht matin soir midi nuit anoche".split()
    + "manana tarde noche quarter half".split()
)
