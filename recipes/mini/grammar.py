"""Write the sentences of the mini corpus: a context-free grammar of spoken commands and small talk.

A line `name = a | b | ...` (or several lines) gives the alternatives of a rule; `{name}` stands for
any of them. Words are what espeak-ng is given; `=a` is the letter A spoken by its name. No two
alternatives of one place sound alike (ROAD/RODE, SARA/SARAH), and words whose sound depends on their
sense (READ, LIVE, CLOSE, USE) are left out, so each recording has one right transcript.
"""

import re
from itertools import pairwise

from synthesis.grammar import draw, parse

GRAMMAR = """
sentence = {home} | {home} | {music} | {phone} | {route} | {robot} | {shop} | {shop} | {sky} | {clock}
    | {clock} | {sum} | {sum} | {code} | {code} | {code} | {travel} | {talk} | {office}

home = turn {on} the {device} in the {room} | {please} switch {on} the {room} {device}
    | set the {room} temperature to {below100} degrees | {please} make the {room} lights {colour}
    | is the {device} in the {room} still {on}? | {open} the {room} {opening}
    | {please} {open} the {opening} at {time} | dim the {device} to {below100} percent
    | when did {person} {open} the {opening} in the {room}? | start the {machine} {when}
    | {please} stop the {machine} | the {machine} in the {room} will finish at {time}
    | remind my {family} to clean the {machine} {when}
    | how much power does the {machine} in the {room} need {when}?
music = play {genre} music in the {room} | play some {genre} by {person}
    | {please} turn the volume {updown} to {below100} | skip this song and play track {number}
    | play the {ordinal} song of the {genre} album | pause the music in the {room} for {small} minutes
    | add this {genre} song to my {day} list | who sings the {ordinal} {genre} song?
    | shuffle my {genre} songs {when} | repeat the {ordinal} {genre} song
phone = call {person} {when} | {please} call my {family} at {time} | dial {digits}
    | text {person} that i am {state} | send {person} {surname} a message
    | {please} answer the phone in the {room} {when} | tell my {family} i will be {state}
    | my number is {digits} | did {person} {surname} call me {when}? | leave a message for {person} {surname}
    | the new number of {person} is {digits}
route = take me to the {place} | how far is the {place} from {city}? | turn {side} at the {place}
    | find the nearest {place} in {city} | the {place} is {number} meters ahead
    | drive {side} after {small} miles | how do i get from the {place} to the {place}?
    | avoid the highway between {city} and {city} | follow this road for {small} miles, then turn {side}
    | there is a {place} behind the {place} | walk {compass} until you reach the {place}
    | exit number {below100} is for the {place}
robot = {please} bring me the {colour} {thing} | move {small} steps {direction}
    | put the {thing} {where} the {furniture} | pick up the {size} {thing}
    | pick up the {colour} {thing} and put it {where} the {furniture}
    | robot, turn {side} and move {direction} | lift your {side} arm and wait {small} seconds
    | lift the {thing} with your {side} arm | rotate {number} degrees {side}
    | which {thing} is {where} the {furniture}? | the {size} {colour} {thing} is {where} the {furniture}
    | {please} go back to the {room} and wait {small} minutes
    | drop the {size} {thing} {where} the {furniture} | push the {furniture} {small} inches {direction}
    | shake the {thing} and wait {small} seconds | look {where} the {furniture} for the {thing}
shop = add {small} {unit} of {food} to the list | buy {food}, {food} and {food}
    | how much is the {colour} {clothes} from {country}? | the {clothes} costs {price}
    | we need {small} {unit} of {food} for {meal} | i paid {price} for the {food}
    | order {food} and {drink} for {meal} | do you have this {clothes} in {colour}?
    | a {unit1} of {drink}, please | remove the {food} from my list
    | my {family} wants a {bulk} {colour} {clothes} | is the {food} cheaper than the {food}?
    | cook the {food} for {small} minutes | would you like {drink} with your {food}?
sky = what's the weather like in {city} {when}? | will it be {weather} in {city} on {day}?
    | it's {weather} and {weather} in {city} | {day} will be {weather} with {below100} degrees
    | the forecast for {country} is {weather} | there was {storm} over {country} in {month}
    | expect {storm} in {city} by {day} | a {weather} {season} in {country}
    | {storm} moved {compass} across {country}
clock = wake me up at {time} | set an alarm for {time} {when} | remind me to {task} at {time}
    | set a timer for {small} {shortspan} | meet {person} on {day} at {time} | the party is on {date}
    | what day is {date}? | it's {time} in {city} | my {family} was born in {month} {year}
    | the train to {city} departs at {time} | cancel the alarm on {day} at {time}
    | {country} changed the law in {year} | {person} {surname} moved to {country} in {year}
    | don't forget to {task} {when} | in {season} the {place} opens at {time}
sum = what is {number} plus {number}? | {number} minus {below100} is {number}
    | {number} times {small} makes {number} | the code is {digits} | {number} point {digit} percent
    | divide {number} by {small} | room {number} on the {ordinal} floor | count from {small} to {number}
    | half of {number} {span} | {number} {measure} and {below100} {measure}
    | convert {number} {measure} to {measure} | the {thing} weighs {number} point {digit} {weight}
    | flight {letter} {letter} {number} leaves from gate {below100}
code = {please} spell {spelled} | the code is {nato} {nato} {nato} | {nato} {nato} {small} {nato}
    | ticket {letter} {letter} {letter} {digit} {digit} | the password is {letter} {letter} {digit} {letter}
    | letters {letter}, {letter}, {letter} and {letter} | my name is {spelled} | my name is {person} {surname}
    | license plate {nato} {nato} {digits} | {letter} as in {nato} and {letter} as in {nato}
    | section {letter} {number} | type {letter} {letter}, {letter} {letter} {letter}
    | press {letter} and then {letter} | {letter} {letter}, {letter} {letter} | locker {nato} {below100}
    | platform {small} {letter}
travel = book a {vehicle} from {city} to {city} | the {vehicle} to {country} leaves on {date}
    | we flew from {city} to {country} in {month} | i would like a room in {city} for {small} nights
    | when does the next {vehicle} arrive in {city}? | {person} visited {country}, {country} and {country}
    | the {vehicle} to {city} is {small} minutes late | a ticket to {city} costs {price}
    | is there a {vehicle} to {city} {when}? | they speak {language} in {city}
    | how do you say {food} in {language}? | translate page {number} into {language}
    | {person} {surname} teaches {language} in {city}
talk = {person} and {person} are {state} | my {family} is the best {job} in {city}
    | the {job} likes {animal} and {animal} | have you ever seen a {bulk} {animal}?
    | {person} {surname} is the {ordinal} {job} | the {animal} sleeps {where} the {furniture}
    | tell me a story about the {animal} and the {job} | i think {person} is {state}
    | the {colour} {animal} ran across the garden | why is the {animal} {state}?
    | ask the {job} about the {size} {colour} {thing} | let's visit {family2} {when}
    | {person} {hobby} with {person} every {day} | {language} is easy, said the {job} from {city}
    | the {animal} stole the {food} from the {job}
office = send the report to {person} {surname} | move the meeting to {day} at {time}
    | who is the {job} in the {city} office? | the {job} needs {number} copies by {day}
    | print {small} copies of page {number} | the meeting in {city} lasted {small} {span}
    | invite {person} {surname} and the {job} | the budget for {month} is {price}
    | page {number} shows {country} | search for {language} books about {animal2}
    | there are {small} {animal2} in {country} | delete the {ordinal} message from {person} {surname}

please = please | could you | can you | would you | robot, | computer,
on = on | off
open = open | shut | lock | unlock
updown = up | down
side = left | right
compass = north | south | east | west
direction = forward | backward | sideways
where = under | behind | beside | above | near | inside | between us and
bulk = tiny | small | big | huge
size = {bulk} | heavy | broken | wooden | empty
when = today | tonight | tomorrow | this morning | this afternoon | this evening | next week | on {day}
    | in {small} {span} | right now | later
room = kitchen | bedroom | bathroom | hall | garage | office | attic | cellar | nursery | lounge | library
device = light | lamp | heater | fan | television | radio | projector | speaker | humidifier | camera
machine = dishwasher | oven | dryer | vacuum | printer | toaster | kettle | microwave
opening = window | door | curtain | gate | blinds
colour = red | green | yellow | purple | orange | black | white | pink | brown | silver | golden | violet
genre = jazz | rock | classical | folk | blues | techno | country | reggae | disco | opera | piano | gospel
ordinal = first | second | third | fourth | fifth | sixth | seventh | eighth | ninth | tenth | last
dayth = {ordinal1} | eleventh | twelfth | thirteenth | fourteenth | fifteenth | sixteenth | seventeenth
    | eighteenth | nineteenth | twentieth | twenty {ordinal1} | thirtieth | thirty first
ordinal1 = first | second | third | fourth | fifth | sixth | seventh | eighth | ninth
day = monday | tuesday | wednesday | thursday | friday | saturday | sunday
month = january | february | march | april | may | june | july | august | september | october | november
    | december
season = spring | summer | autumn | winter
date = the {dayth} of {month} | {month} the {dayth} | {day} the {dayth} of {month}
year = nineteen {tens} {digit} | eighteen {tens} {digit} | two thousand and {small} | twenty {teen}
    | twenty {twenties}
twenties = twenty {digit} | thirty {digit}
shortspan = seconds | minutes | hours
span = seconds | minutes | hours | days | weeks | months | years
time = {hour} o'clock | {hour} {minute} | half past {hour} | a quarter to {hour} | a quarter past {hour}
    | {hour} {minute} {noon} | ten past {hour} | twenty to {hour} | noon | midnight
hour = one | two | three | four | five | six | seven | eight | nine | ten | eleven | twelve
minute = fifteen | thirty | forty five | ten | twenty | {teen} | fifty {digit} | twenty {digit}
noon = in the morning | in the evening | in the afternoon
digit = one | two | three | four | five | six | seven | eight | nine
digit0 = zero | {digit} | {digit}
digits = {digit} {digit0} {digit0} | {digit0} {digit0} {digit0} {digit}
    | {digit} {digit0} {digit0} {digit0} {digit0} {digit}
teen = ten | eleven | twelve | thirteen | fourteen | fifteen | sixteen | seventeen | eighteen | nineteen
tens = twenty | thirty | forty | fifty | sixty | seventy | eighty | ninety
small = two | three | four | five | six | seven | eight | nine | {teen}
below100 = {small} | {tens} | {tens} {digit}
number = {below100} | {below100} | {digit} hundred | {digit} hundred and {below100}
    | {small} thousand {digit} hundred | {small} thousand and {below100} | {tens} {digit}
price = {small} dollars | {small} pounds {tens} | {number} euros | {below100} dollars and {below100} cents
    | {number} yen
measure = miles | meters | inches | yards | liters | gallons | ounces | kilometers | acres
weight = grams | tons | kilograms | ounces
unit = bottles | bags | boxes | cans | slices | jars | bowls | packets
unit1 = bottle | glass | cup | jug | mug
food = apples | bananas | bread | butter | cheese | tomatoes | onions | rice | pasta | potatoes | carrots
    | eggs | honey | sugar | lemons | grapes | spinach | chicken | salmon | soup | pizza | mushrooms | pepper
    | chocolate | cabbage | yogurt
drink = milk | coffee | water | lemonade | cider | cocoa | orange juice
meal = breakfast | lunch | dinner | supper
clothes = shirt | jacket | coat | dress | skirt | hat | sweater | belt | scarf | umbrella
thing = ball | book | cup | bottle | hammer | box | basket | towel | blanket | pencil | spoon | key
    | screwdriver | bucket | mug | jug | glass | envelope | candle | brush | mirror
furniture = table | chair | shelf | sofa | desk | bed | cupboard | drawer | carpet | wardrobe
place = airport | station | hospital | school | church | museum | bank | bakery | pharmacy | library | park
    | bridge | harbour | stadium | castle | cinema | hotel | market | university | zoo
vehicle = train | bus | taxi | ferry | flight | bicycle | truck
weather = sunny | cloudy | rainy | foggy | windy | cold | warm | dry | humid | stormy | freezing | mild
storm = thunder | snow | lightning | heavy rain | a hurricane | a blizzard | drizzle | frost
state = tired | hungry | happy | busy | angry | ready | asleep | thirsty | nervous | late | lost | quiet
task = water the flowers | feed the {animal} | pay the rent | take my medicine | lock the door
    | wash the {clothes} | call {person} | empty the basket | buy {food}
hobby = dances | swims | paints | plays chess | goes fishing | jogs | plays football
animal = dog | cat | rabbit | tiger | elephant | monkey | penguin | dolphin | parrot | spider | turtle | lion
    | camel | donkey
animal2 = wolves | sharks | eagles | snakes | whales | butterflies
job = doctor | teacher | driver | baker | painter | nurse | lawyer | farmer | pilot | plumber | singer
    | engineer | judge | gardener | manager | dentist
family = mother | father | brother | sister | uncle | daughter | cousin | grandmother | neighbour | boss
    | husband | wife
family2 = your parents | your grandmother | my cousin | the neighbour | my uncle
person = {name} | {name2}
name = anna | emma | oscar | laura | peter | david | helen | maria | henry | james | simon | julia | nina
    | martin | alice
name2 = oliver | daniel | george | william | robert | thomas | charles | emily | jessica | olivia | diana
    | edward | barbara | linda | susan | nancy | kevin | patrick | amanda | samuel
surname = smith | wilson | taylor | johnson | walker | cooper | morgan | parker | carter | murphy | harris
    | robinson | miller | anderson | jackson | baxter | campbell | fletcher
city = london | paris | berlin | madrid | boston | chicago | dublin | vienna | tokyo | sydney | moscow
    | denver | dallas | atlanta | seattle | glasgow | oxford | toronto | bombay | athens | lisbon | geneva
    | havana | manchester
country = france | germany | spain | italy | canada | mexico | brazil | china | japan | india | egypt | sweden
    | norway | poland | ireland | scotland | australia | portugal
language = english | french | german | spanish | italian | russian | japanese | arabic | dutch | swedish
    | greek
nato = alpha | bravo | charlie | delta | echo | foxtrot | golf | hotel | india | juliet | kilo | lima | mike
    | november | oscar | papa | quebec | romeo | sierra | tango | uniform | victor | whiskey | yankee | zulu
letter = =a | =b | =c | =d | =e | =f | =g | =h | =i | =j | =k | =l | =m | =n | =o | =p | =q | =r | =s | =t
    | =u | =v | =w | =x | =y | =z
"""


RULES = parse(GRAMMAR)
RULES["spelled"] = [f"{name}, {' '.join('=' + c for c in name)}" for name in RULES["name"]]


def transcript(sentence):
    """Return what is said as a transcript: upper case, words of A-Z and apostrophe.

    >>> transcript("what's that, =a or =b?")
    "WHAT'S THAT A OR B"
    """
    return " ".join(re.sub("[^a-z' ]", "", sentence).upper().split())


def spoken(sentence):
    """Return what espeak-ng is given: 'eh' has the sound of the letter A, a bare 'a' would be the article."""
    return sentence.replace("=a", "eh").replace("=", "")


def sentences(rng, count, taken):
    """Draw `count` sentences of 3 to 14 words, different from each other and from all in `taken`.

    rng:     random.Random
    taken:   set of transcripts, which the new ones join
    returns  list of sentences, as `transcript` and `spoken` want them
    """
    return draw(rng, count, taken, RULES, transcript, acceptable)


def acceptable(text, taken):
    """Tell whether a transcript is new, of 3 to 14 words, and names nothing twice in a row but digits and letters."""
    words = text.split()
    twice = any(a == b and len(a) > 5 for a, b in pairwise(words))
    return 3 <= len(words) <= 14 and not twice and text not in taken
