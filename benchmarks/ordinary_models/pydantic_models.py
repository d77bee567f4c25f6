"""Shapes whose schemas pydantic prints: ordinary models, as they stand in people's code."""

from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from benchmarks.ordinary_models.shape import Shape


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Price(_Closed):
    item: str = Field(max_length=20)
    price: Decimal


class Payment(_Closed):
    amount: Annotated[Decimal, Field(max_digits=8, decimal_places=2)]
    currency: Literal["EUR", "USD", "GBP"]


class Event(BaseModel):
    title: str
    day: date
    starts: datetime
    alarm: time | None = None


class Account(_Closed):
    id: UUID
    owner: str = Field(min_length=2, max_length=30)
    active: bool = True


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    breed: str


class Owner(BaseModel):
    name: str
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Tree(_Closed):
    label: str = Field(max_length=12)
    children: list["Tree"] = Field(default_factory=list, max_length=2)


class Address(BaseModel):
    street: str
    city: str
    zip: str = Field(pattern=r"^\d{5}$")


class Person(BaseModel):
    name: str
    age: int | None = None
    address: Address | None = None
    nickname: str | None = Field(default=None, max_length=15)


class Point(_Closed):
    position: tuple[float, float]
    label: tuple[Literal["km", "mi"], int]


class Server(_Closed):
    host: str = Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")
    port: int = Field(gt=0, lt=65536)
    weight: float = Field(ge=0, le=1)
    tags: list[Annotated[str, Field(min_length=1, max_length=8)]] = Field(
        min_length=1, max_length=3
    )


class Permissions(_Closed):
    user: str = Field(max_length=16)
    granted: set[Literal["read", "write", "delete", "share"]] = Field(min_length=1)


class Lottery(_Closed):
    numbers: Annotated[set[Annotated[int, Field(ge=1, le=49)]], Field(min_length=6, max_length=6)]


class Inventory(_Closed):
    stock: dict[str, int] = Field(min_length=1, max_length=3)


class Color(StrEnum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Paint(_Closed):
    shares: dict[Color, Annotated[int, Field(ge=0, le=100)]] = Field(min_length=2)


class Headers(_Closed):
    headers: dict[Annotated[str, Field(pattern="^x-[a-z]{1,8}$")], str]


class Settings(BaseModel):
    debug: bool = False
    level: Literal["info", "warning", "error"] = "info"
    retries: int = Field(default=3, ge=0, le=10)
    timeout: float = Field(default=1.5, gt=0)
    name: str = "service"
    paths: list[str] = Field(default_factory=list)
    limits: dict[str, float] = Field(default_factory=dict)


class Wallet(_Closed):
    id: int = Field(ge=0, le=2**64 - 1)
    balance: int = Field(ge=-(2**63), le=2**63 - 1)


class Money(_Closed):
    total: float = Field(ge=0, le=99.99, multiple_of=0.01)
    count: int = Field(multiple_of=5, gt=0, le=100)


class Article(_Closed):
    title: str = Field(max_length=60)
    body: str = Field(max_length=2000)


class Report(_Closed):
    summary: str = Field(max_length=10000)
    score: int = Field(ge=0, le=10)


class Mixed(BaseModel):
    """A union that is told apart by type alone."""

    value: int | float | str | bool | None
    values: list[int | str] = Field(max_length=4)


class Expression(_Closed):
    operator: Literal["+", "-", "*"]
    left: "int | Expression"
    right: "int | Expression"


class Step(_Closed):
    """What is thought before what is said."""

    explanation: str
    output: str


class Reasoning(_Closed):
    steps: list[Step] = Field(min_length=1, max_length=3)
    final_answer: str


class Recipe(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str
    minutes: int = Field(ge=1)


_COUNTRIES = [f"{first}{second}" for first in "ABCDEFGHIJKLMNOP" for second in "ABDEGHIKLMNORSTUZ"]


ANY_DECIMAL = r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"
DECIMAL_8_2 = r"^(?!^[-+.]*$)[+-]?0*(?:\d{0,6}|(?=[\d.]{1,9}0*$)\d{0,6}\.\d{0,2}0*$)"


def _decimal(model: type[BaseModel], name: str, pattern: str) -> dict[str, Any]:
    """With the pattern that most versions of pydantic print beside a Decimal."""
    schema: dict[str, Any] = model.model_json_schema()
    (text,) = [each for each in schema["properties"][name]["anyOf"] if each["type"] == "string"]
    text["pattern"] = pattern
    return schema


def _chain(length: int) -> dict[str, Any]:
    """What pydantic prints of models each of which may hold the next one.

    Written down, as its own printer goes no deeper than some tens of them.
    """
    definitions: dict[str, Any] = {
        f"Link{number}": {
            "properties": {
                "value": {"title": "Value", "type": "integer"},
                "next": {
                    "anyOf": [{"$ref": f"#/$defs/Link{number + 1}"}, {"type": "null"}],
                    "default": None,
                },
            },
            "required": ["value"],
            "title": f"Link{number}",
            "type": "object",
        }
        for number in range(length)
    }
    definitions[f"Link{length}"] = {
        "properties": {"value": {"title": "Value", "type": "integer"}},
        "required": ["value"],
        "title": f"Link{length}",
        "type": "object",
    }
    first = definitions.pop("Link0")
    return {"$defs": definitions, **first}


def _schema(of: Any) -> dict[str, Any]:
    return TypeAdapter(of).json_schema()


def shapes() -> list[Shape]:
    """All of them."""
    codes: Any = Literal[tuple(_COUNTRIES)]
    country = create_model("Country", code=(codes, ...))
    return [
        Shape(
            "pydantic: Decimal",
            "An apple costs, as JSON:",
            _decimal(Price, "price", ANY_DECIMAL),
            ("pattern",),
        ),
        Shape(
            "pydantic: Decimal, digits",
            "12.50 euros:",
            _decimal(Payment, "amount", DECIMAL_8_2),
            ("pattern",),
        ),
        Shape("pydantic: dates", "The next concert as JSON:", _schema(Event), ("format",)),
        Shape("pydantic: UUID", "A new account as JSON:", _schema(Account), ("format",)),
        Shape("pydantic: discriminated union", "Ann has a cat with nine lives:", _schema(Owner)),
        Shape("pydantic: recursive tree", "A small family tree as JSON:", _schema(Tree)),
        Shape(
            "pydantic: nested optional models",
            "Tom, 35, lives in 12 Main Street, Springfield 12345:",
            _schema(Person),
            ("pattern",),
        ),
        Shape("pydantic: tuples", "A point 3 km away:", _schema(Point)),
        Shape("pydantic: bounds", "The web server as JSON:", _schema(Server), ("pattern",)),
        Shape("pydantic: set of literals", "Bob may read:", _schema(Permissions), ("uniqueItems",)),
        Shape(
            "pydantic: six different integers",
            "Tonight's lottery numbers:",
            _schema(Lottery),
            ("uniqueItems",),
        ),
        Shape(
            "pydantic: dict of integers",
            "There are 3 apples and 4 pears:",
            _schema(Inventory),
            ("minProperties", "maxProperties"),
        ),
        Shape(
            "pydantic: dict over an enum",
            "Mix purple paint:",
            _schema(Paint),
            ("propertyNames", "minProperties"),
        ),
        Shape(
            "pydantic: dict over a pattern",
            "The HTTP headers:",
            _schema(Headers),
            ("propertyNames", "patternProperties"),
        ),
        Shape("pydantic: defaults", "The service's settings as JSON:", _schema(Settings)),
        Shape("pydantic: 64-bit bounds", "A wallet as JSON:", _schema(Wallet)),
        Shape("pydantic: multipleOf", "The bill as JSON:", _schema(Money), ("multipleOf",)),
        Shape("pydantic: 2000 characters", "A short article:", _schema(Article), ("maxLength",)),
        Shape("pydantic: 10000 characters", "A short summary:", _schema(Report), ("maxLength",)),
        Shape("pydantic: union of types", "Some values as JSON:", _schema(Mixed)),
        Shape("pydantic: expression", "1 + 2 * 3 as a tree:", _schema(Expression)),
        Shape("pydantic: steps", "Solve 8x + 7 = -23, step by step:", _schema(Reasoning)),
        Shape("pydantic: extra fields", "A recipe for pancakes as JSON:", _schema(Recipe)),
        Shape("pydantic: long enum", "The country of Paris as JSON:", _schema(country)),
        Shape("pydantic: 200 definitions", "A linked list as JSON:", _chain(200)),
        Shape("pydantic: list of models", "Two people as JSON:", _schema(list[Person])),
    ]
