package sqlscan

import "strings"

// objects are the kinds of thing that live in the database and not in a
// session, so that making, changing or dropping one leaves no trace in it.
var objects = map[string]bool{
	"TABLE": true, "VIEW": true, "INDEX": true, "SCHEMA": true, "DATABASE": true, "SEQUENCE": true, "TYPE": true, "DOMAIN": true,
	"MACRO": true, "FUNCTION": true, "PROCEDURE": true, "AGGREGATE": true, "TRIGGER": true, "RULE": true, "POLICY": true, "COLLATION": true,
	"ROLE": true, "USER": true, "GROUP": true, "SERVER": true, "FOREIGN": true, "EXTENSION": true, "CATALOG": true, "CONSTRAINT": true,
	"PUBLICATION": true, "SUBSCRIPTION": true, "STATISTICS": true, "TABLESPACE": true, "OPERATOR": true, "CAST": true, "FOLDER": true, "SPACE": true, "VDS": true, "DATASET": true,
}

// decorations stand between CREATE, ALTER or DROP and the kind of object.
var decorations = map[string]bool{
	"OR": true, "REPLACE": true, "UNLOGGED": true, "RECURSIVE": true, "MATERIALIZED": true, "UNIQUE": true, "EXTERNAL": true,
	"TRANSIENT": true, "VIRTUAL": true, "EVENT": true,
}

// object finds the kind of object that CREATE, ALTER or DROP is about: the
// index of its word, or -1, and whether it is a temporary one.
func object(toks []token) (at int, temp bool) {
	for i := 1; i < len(toks) && toks[i].kind == word; i++ {
		switch t := toks[i]; {
		case t.is("TEMP", "TEMPORARY", "LOCAL", "GLOBAL", "VOLATILE"):
			temp = true
		case objects[t.text]:
			return i, temp
		case !decorations[t.text]:
			return -1, temp
		}
	}
	return -1, temp
}

func createEffect(toks []token, sql string) []Effect {
	at, temp := object(toks)
	if at < 0 {
		return anything(toks, sql) // a secret, a variable, whatever a server has
	}
	i := at + 1
	if i+2 < len(toks) && toks[i].is("IF") && toks[i+1].is("NOT") && toks[i+2].is("EXISTS") {
		i += 3
	}
	name := nameAt(toks, i, sql)
	temp = temp || inTemp(toks[i:])
	switch {
	case temp && toks[at].is("TABLE"):
		return named(EffectTempTable, toks, i, sql)
	case temp && toks[at].is("VIEW"):
		return named(EffectTempView, toks, i, sql)
	case temp, name == "" && toks[at].is("TABLE"):
		return anything(toks, sql) // a temporary macro or sequence, a table named #t
	default:
		return nil
	}
}

func alterEffect(toks []token, sql string) []Effect {
	if at, _ := object(toks); at < 0 || toks[at].is("DATABASE") {
		return anything(toks, sql) // ALTER SESSION, ALTER DATABASE … SET ALIAS
	}
	return nil
}

func dropEffect(toks []token, sql string) []Effect {
	if at, _ := object(toks); at < 0 {
		return anything(toks, sql) // a secret, a variable
	}
	return nil
}

// inTemp reports whether the name that toks begin with is that of a temporary
// object, by its catalogue or schema.
func inTemp(toks []token) bool {
	if len(toks) < 3 || !toks[0].name() || !toks[1].punct(".") {
		return false
	}
	first := upper(toks[0])
	return first == "TEMP" || strings.HasPrefix(first, "PG_TEMP")
}
