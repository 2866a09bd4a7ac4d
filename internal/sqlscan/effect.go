package sqlscan

// EffectKind says what a statement leaves behind in its session.
type EffectKind uint8

// The kinds of effect.
const (
	EffectUnknown   EffectKind = iota // cannot be told
	EffectSetting                     // SET name: undone by RESET name
	EffectTempTable                   // CREATE TEMP TABLE name
	EffectTempView                    // CREATE TEMP VIEW name
	EffectPrepared                    // PREPARE name
	EffectUse                         // USE name: another default catalogue or schema
)

// Effect is one thing left behind. Name is as it was written, quotes included,
// so that it can stand in SQL again.
type Effect struct {
	Kind EffectKind
	Name string
}

// effects tells what a statement that is neither a read nor transaction
// control leaves behind.
func effects(main []token, sql string) []Effect {
	verb := main[0].text
	if noTrace[verb] {
		return nil
	}
	switch verb {
	case "SET":
		return setEffect(main, sql)
	case "RESET", "DEALLOCATE", "DETACH", "UNLISTEN", "CLOSE", "FETCH":
		// Each takes back something that an earlier statement left, which
		// is on record already; taking it back twice does no harm.
		return nil
	case "CREATE":
		return createEffect(main, sql)
	case "PREPARE":
		return named(EffectPrepared, main, 1, sql)
	case "EXECUTE", "EXEC", "CALL":
		// A procedure may do anything a session can.
		return []Effect{{Kind: EffectUnknown}}
	case "USE":
		return named(EffectUse, main, 1, sql)
	default:
		return []Effect{{Kind: EffectUnknown}}
	}
}

func setEffect(main []token, sql string) []Effect {
	i := 1
	for i < len(main) && main[i].is("SESSION", "GLOBAL", "VARIABLE", "PERSIST") {
		if !main[i].is("SESSION") {
			// A global setting outlives the session, and a variable has
			// no RESET: neither can be taken back here.
			return []Effect{{Kind: EffectUnknown}}
		}
		i++
	}
	if i < len(main) && main[i].is("LOCAL", "TRANSACTION", "CONSTRAINTS") {
		return nil // ends with the transaction
	}
	if i < len(main) && main[i].is("ROLE", "CHARACTERISTICS", "AUTHORIZATION", "NAMES", "CATALOG") {
		return []Effect{{Kind: EffectUnknown}}
	}
	return named(EffectSetting, main, i, sql)
}

func createEffect(main []token, sql string) []Effect {
	i := 1
	temp, kind := false, EffectUnknown
	for ; i < len(main); i++ {
		switch {
		case main[i].is("OR", "REPLACE", "LOCAL", "GLOBAL", "UNLOGGED", "RECURSIVE", "MATERIALIZED", "UNIQUE", "EXTERNAL"):
			continue
		case main[i].is("TEMP", "TEMPORARY"):
			temp = true
			continue
		case main[i].is("TABLE"):
			kind = EffectTempTable
		case main[i].is("VIEW"):
			kind = EffectTempView
		}
		break
	}
	switch {
	case !temp:
		return nil
	case kind == EffectUnknown:
		return []Effect{{Kind: EffectUnknown}} // a temporary macro, sequence, type …
	}
	i++
	if i+2 < len(main) && main[i].is("IF") && main[i+1].is("NOT") && main[i+2].is("EXISTS") {
		i += 3
	}
	return named(kind, main, i, sql)
}

// named is the effect whose possibly qualified name begins at main[i].
func named(k EffectKind, main []token, i int, sql string) []Effect {
	if i >= len(main) || (main[i].kind != word && main[i].kind != quoted && main[i].kind != text) {
		return []Effect{{Kind: EffectUnknown}}
	}
	end := i
	for end+2 < len(main) && main[end+1].punct(".") && (main[end+2].kind == word || main[end+2].kind == quoted) {
		end += 2
	}
	return []Effect{{Kind: k, Name: sql[main[i].start:main[end].end]}}
}
