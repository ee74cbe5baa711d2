"""Chance, and the words that names, addresses and texts are made of."""

import random
import zlib

import numpy as np


def dice(seed: int, *name: object) -> random.Random:
    """Throw dice for rows that are made one by one."""
    return random.Random(f"{seed} {name}")  # noqa: S311 - to be the same again


def bulk(seed: int, *name: object) -> np.random.Generator:
    """Throw dice for whole columns."""
    return np.random.default_rng([seed, zlib.crc32(repr(name).encode())])


def words(text: str) -> list[str]:
    """Split a text into its words."""
    return text.split()


FIRST_NAMES = words("""
    Ada Alan Alma Amos Anna Arne Bela Berta Boris Carla Cesar Clara Dario Dora Edgar Ella Emil Erna
    Felix Flora Georg Greta Hans Hedy Hugo Ida Igor Ines Ivan Jana Jonas Julia Karl Katja Kurt Lena
    Leo Lotte Luca Mara Max Mina Nils Nora Olaf Olga Oscar Paula Peter Rita Rolf Rosa Sara Simon
    Tara Theo Tilda Ugo Vera Victor Wanda Willy Xenia Yann Zita
""")
LAST_NAMES = words("""
    Abbott Adler Bauer Becker Berg Bishop Boyd Brandt Burke Carver Chen Cohen Cole Conti Cooper
    Cruz Dale Dietz Doyle Drake Duarte Egan Ellis Engel Evans Falk Farmer Fischer Fox Frost Garcia
    Gibbs Grant Gruber Haas Hale Hayes Hoffman Holt Hughes Irwin Jansen Jordan Keller Kim Klein Koch
    Lang Larsen Leone Lopez Lund Marsh Mason Meyer Miller Moreau Moss Nash Nolan Novak O'Brien Olsen
    Page Palmer Park Perez Pope Quinn Ramos Reed Reyes Rossi Roth Sato Schmidt Shaw Silva Stone
    Tanaka Thorn Todd Vance Vega Vogel Wagner Walsh Weber West White Wolf Wong Wood York Young
""")
STREETS = words("""
    Acacia Aspen Bay Beech Birch Bridge Canal Cedar Cherry Church Clover Dock Elm Ferry Field Forge
    Garden Grove Harbor Hazel Hill Ivy Juniper King Lake Laurel Linden Maple Market Meadow Mill Oak
    Orchard Park Pine Poplar Queen River School Spring Station Summit Union Valley Walnut Willow
""")
STREET_KINDS = ("Street", "Avenue", "Road", "Lane", "Boulevard", "Court", "Drive", "Way")
CITIES = words("""
    Ashford Bellmont Brighton Carlton Cedarville Clayton Dayton Easton Fairfield Franklin Georgetown
    Greenville Hamilton Hudson Kingston Lakeside Lexington Madison Marion Milford Newport Oakland
    Oxford Paterson Plymouth Richmond Riverside Salem Springfield Trenton Vernon Weston Winchester
""")
DOMAINS = ("mail.example", "post.example.com", "web.example.net", "home.example.org")
EMPLOYERS = tuple(f"{name} {kind}" for name in LAST_NAMES[::4] for kind in ("Works", "Bank"))
TEXT = [word.lower() for word in (*STREETS, *CITIES, *LAST_NAMES) if word.isalpha()]

USA, CANADA = "United States of America", "Canada"
STATES = """
    AL Alabama,AK Alaska,AZ Arizona,AR Arkansas,CA California,CO Colorado,CT Connecticut,
    DE Delaware,DC District of Columbia,FL Florida,GA Georgia,HI Hawaii,ID Idaho,IL Illinois,
    IN Indiana,IA Iowa,KS Kansas,KY Kentucky,LA Louisiana,ME Maine,MD Maryland,MA Massachusetts,
    MI Michigan,MN Minnesota,MS Mississippi,MO Missouri,MT Montana,NE Nebraska,NV Nevada,
    NH New Hampshire,NJ New Jersey,NM New Mexico,NY New York,NC North Carolina,ND North Dakota,
    OH Ohio,OK Oklahoma,OR Oregon,PA Pennsylvania,RI Rhode Island,SC South Carolina,
    SD South Dakota,TN Tennessee,TX Texas,UT Utah,VT Vermont,VA Virginia,WA Washington,
    WV West Virginia,WI Wisconsin,WY Wyoming
"""
PROVINCES = """
    AB Alberta,BC British Columbia,MB Manitoba,NB New Brunswick,NL Newfoundland,NS Nova Scotia,
    NT Northwest Territories,NU Nunavut,ON Ontario,PE Prince Edward Island,QC Quebec,
    SK Saskatchewan,YT Yukon
"""
REGIONS = [
    (*region.strip().split(" ", 1), country)
    for country, regions in ((USA, STATES), (CANADA, PROVINCES))
    for region in regions.split(",")
]
"""Code, name and country of each state and province."""


def text(dice: random.Random, count: int) -> str:
    """Write words that say nothing."""
    return " ".join(dice.choices(TEXT, k=count))


def place(dice: random.Random) -> tuple[str, str, str, str]:
    """Choose a postal code, a city, a state and a country that agree."""
    code, _, country = dice.choice(REGIONS)
    letters = "ABCEGHJKLMNPRSTVXY"
    postal = (
        f"{dice.randrange(501, 99951):05}"
        if country == USA
        else f"{dice.choice(letters)}{dice.randrange(10)}{dice.choice(letters)} "
        f"{dice.randrange(10)}{dice.choice(letters)}{dice.randrange(10)}"
    )
    return postal, dice.choice(CITIES), code, country


def street(dice: random.Random, number: int) -> str:
    """Write the first line of an address; different numbers give different houses."""
    return f"{10 + number * 37 % 99_989} {dice.choice(STREETS)} {dice.choice(STREET_KINDS)}"
