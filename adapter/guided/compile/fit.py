"""What llguidance would hold less than exactly, without a word."""

from adapter.languages.json_schema.schema import Schema, SchemaError, walk


def check_names_are_counted(schema: Schema) -> None:
    """Refuse what llguidance cannot hold: it counts a name that comes twice as two.

    Raises:
        SchemaError: minProperties asks for names that the schema does not declare.
    """
    for node in walk(schema):
        needed = node.get("minProperties", 0)
        free = node.get("additionalProperties", True) is not False or node.get("patternProperties")
        if free and needed > len(set(node.get("required") or ())):
            raise SchemaError("minProperties above the number of required names")
