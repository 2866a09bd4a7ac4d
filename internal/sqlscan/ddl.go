package sqlscan

import "strings"

// persistentKinds are the kinds of thing that live in the database and not in a
// session, so that making, changing or dropping one leaves no trace in it.
var persistentKinds = map[string]bool{
	"TABLE": true, "VIEW": true, "INDEX": true, "SCHEMA": true, "DATABASE": true, "SEQUENCE": true, "TYPE": true, "DOMAIN": true,
	"MACRO": true, "FUNCTION": true, "PROCEDURE": true, "AGGREGATE": true, "TRIGGER": true, "RULE": true, "POLICY": true, "COLLATION": true,
	"ROLE": true, "USER": true, "GROUP": true, "SERVER": true, "FOREIGN": true, "EXTENSION": true, "CATALOG": true, "CONSTRAINT": true,
	"PUBLICATION": true, "SUBSCRIPTION": true, "STATISTICS": true, "TABLESPACE": true, "OPERATOR": true, "CAST": true, "FOLDER": true, "SPACE": true, "VDS": true, "DATASET": true,
}

// kindModifiers stand between CREATE, ALTER or DROP and the kind of object.
var kindModifiers = map[string]bool{
	"OR": true, "REPLACE": true, "UNLOGGED": true, "RECURSIVE": true, "MATERIALIZED": true, "UNIQUE": true, "EXTERNAL": true,
	"TRANSIENT": true, "VIRTUAL": true, "EVENT": true,
}

// findObjectKind finds the kind of object that CREATE, ALTER or DROP is about: the
// index of its word, or -1, and whether it is a temporary one.
func findObjectKind(toks []token) (at int, temp bool) {
	for i := 1; i < len(toks) && toks[i].kind == wordToken; i++ {
		switch t := toks[i]; {
		case t.is("TEMP", "TEMPORARY", "LOCAL", "GLOBAL", "VOLATILE"):
			temp = true
		case persistentKinds[t.text]:
			return i, temp
		case !kindModifiers[t.text]:
			return -1, temp
		}
	}
	return -1, temp
}

func createEffect(toks []token, sql string) []Effect {
	at, temp := findObjectKind(toks)
	if at < 0 {
		return unknownEffect(toks, sql) // a secret, a variable, whatever a server has
	}
	i := at + 1
	if i+2 < len(toks) && toks[i].is("IF") && toks[i+1].is("NOT") && toks[i+2].is("EXISTS") {
		i += 3
	}
	name := nameAt(toks, i, sql)
	temp = temp || nameIsTemporary(toks[i:])
	switch {
	case temp && toks[at].is("TABLE"):
		return namedEffect(EffectTempTable, toks, i, sql)
	case temp && toks[at].is("VIEW"):
		return namedEffect(EffectTempView, toks, i, sql)
	case temp, name == "" && toks[at].is("TABLE"):
		return unknownEffect(toks, sql) // a temporary macro or sequence, a table named #t
	default:
		return nil
	}
}

func alterEffect(toks []token, sql string) []Effect {
	if at, _ := findObjectKind(toks); at < 0 || toks[at].is("DATABASE") {
		return unknownEffect(toks, sql) // ALTER SESSION, ALTER DATABASE … SET ALIAS
	}
	return nil
}

func dropEffect(toks []token, sql string) []Effect {
	if at, _ := findObjectKind(toks); at < 0 {
		return unknownEffect(toks, sql) // a secret, a variable
	}
	return nil
}

// nameIsTemporary reports whether the name that toks begin with is that of a temporary
// object, by its catalogue or schema.
func nameIsTemporary(toks []token) bool {
	if len(toks) < 3 || !toks[0].isName() || !toks[1].isPunct(".") {
		return false
	}
	first := upperName(toks[0])
	return first == "TEMP" || strings.HasPrefix(first, "PG_TEMP")
}
