package sqlscan

import "strings"

// EffectKind says what a statement leaves behind in its session.
type EffectKind uint8

// The kinds of effect, and what takes each back.
const (
	EffectUnknown        EffectKind = iota // cannot be told, or nothing takes it back: the session must end
	EffectSetting                          // the setting Name has another value: read before, set and compared after
	EffectSessionSetting                   // the same of the session's own value: that of the whole server is as it was
	EffectImpliedSetting                   // the same by a statement that does not name it: the server need not have it
	EffectNamespace                        // another current catalogue, schema or search path: read before, set and compared after
	EffectTempTable                        // CREATE TEMP TABLE Name: DROP TABLE
	EffectTempView                         // CREATE TEMP VIEW Name: DROP VIEW
	EffectPrepared                         // PREPARE Name: DEALLOCATE Name
	EffectPivotType                        // PIVOT by the values in the data: DROP TYPE of what DuckDB has made of them
	EffectLinkedSettings                   // the setting Name changes others with it, even if it is refused: the session must end
	EffectSecret                           // the setting Name has another value, which servers do not show: RESET, and the session must end
	EffectTxPolicy                         // what runs in steps has failed in a transaction: RESET of the setting Name, if the server has it
	EffectDeallocate                       // DEALLOCATE Name: nothing, if this session has prepared it and replaced none by that, else unknown
)

// Effect is one thing left behind. Name is as it was written, quotes included,
// so that it can stand in SQL again.
type Effect struct {
	Kind EffectKind
	Name string
}

// Key is the effect's name as servers compare it: without quotes, in lower
// case.
func (e Effect) Key() string { return strings.ToLower(e.Unquoted()) }

// Unquoted is the effect's name without quotes.
func (e Effect) Unquoted() string { return unquote(e.Name) }

// unicodePrefix is the length of the U& of U&"name".
func unicodePrefix(name string) int {
	if strings.HasPrefix(name, `U&"`) || strings.HasPrefix(name, `u&"`) {
		return 2
	}
	return 0
}

func unquote(name string) string {
	name = name[unicodePrefix(name):]
	if len(name) > 1 && (name[0] == '"' || name[0] == '`' || name[0] == '\'') && name[len(name)-1] == name[0] {
		q := name[:1]
		return strings.ReplaceAll(name[1:len(name)-1], q+q, q)
	}
	return name
}

// namespaceSettings are settings by another name: the place where names are
// looked for.
var namespaceSettings = map[string]bool{"schema": true, "search_path": true, "catalog": true, "database": true, "current_schema": true, "current_catalog": true}

// settingAliases are the other names of settings of DuckDB's that have several.
var settingAliases = map[string]string{
	"max_memory": "memory_limit", "worker_threads": "threads", "wal_autocheckpoint": "checkpoint_threshold", "null_order": "default_null_order",
	"username": "user",
}

// IsSetting reports whether a setting has another value, which servers show.
func (e Effect) IsSetting() bool {
	return e.Kind == EffectSetting || e.Kind == EffectSessionSetting || e.Kind == EffectImpliedSetting
}

// SettingKey is Key of a setting: the same for all names that servers have for it.
func (e Effect) SettingKey() string {
	key := e.Key()
	if name, ok := settingAliases[key]; ok {
		return name
	}
	return key
}

// settingEffect is the effect of a change of the setting whose name begins at
// toks[i].
func settingEffect(kind EffectKind, toks []token, i int, sql string) []Effect {
	out := namedEffect(kind, toks, i, sql)
	switch e := &out[0]; {
	case e.Kind == EffectUnknown:
	case namespaceSettings[e.Key()]:
		*e = namespaceEffect(e.Key())
	case e.Key() == "seed": // PostgreSQL's setseed by another word, which it shows as "unavailable"
		return unknownEffect(toks, sql)
	case isSecret(e.Key()): // which servers do not show, so that it could not be compared
		e.Kind = EffectSecret
	case strings.Contains(e.Key(), "profil"), linkedSettings[e.Key()]:
		e.Kind = EffectLinkedSettings
		return append(impliedSettings(e.Key()), out...)
	}
	return out
}

// TxPolicy is the effect of a statement that has failed in a transaction while the server ran it
// as several (Script.RunsInSteps). DuckDB has every error abort the transaction meanwhile, by a
// setting of the whole server, and its default again behind the last of them.
func TxPolicy() Effect {
	return Effect{Kind: EffectTxPolicy, Name: "current_transaction_invalidation_policy"}
}

// SearchPath is the name of the effect of a change of the whole search path: the
// current catalogue and schema do not show that it is as it was.
const SearchPath = "search_path"

func namespaceEffect(setting string) Effect {
	if setting != SearchPath {
		setting = ""
	}
	return Effect{Kind: EffectNamespace, Name: setting}
}

func isSecret(key string) bool {
	for _, s := range []string{"secret", "password", "token", "credential", "access_key", "private_key"} {
		if strings.Contains(key, s) {
			return true
		}
	}
	return false
}

func setEffect(toks []token, sql string) []Effect {
	i, kind := 1, EffectSetting
	for i < len(toks) && toks[i].is("SESSION", "LOCAL") {
		i, kind = i+1, EffectSessionSetting // LOCAL ends with the transaction in PostgreSQL; in MySQL it is the session
	}
	switch {
	case i >= len(toks) || !toks[i].isName() && toks[i].kind != stringToken:
		return unknownEffect(toks, sql) // SET @a, SET @@a
	case toks[i].is("CONSTRAINTS"):
		return nil // ends with the transaction
	case namesTemporarySchema(toks[i+1:]):
		return unknownEffect(toks, sql) // what is made there is temporary, whatever it is called
	case toks[i].is("SCHEMA", "CATALOG", "SEARCH_PATH", "DATABASE"):
		return []Effect{namespaceEffect(strings.ToLower(toks[i].text))}
	case toks[i].is("TIME") && i+1 < len(toks) && toks[i+1].is("ZONE"):
		return []Effect{{Kind: kind, Name: "TimeZone"}}
	}
	// What stands behind the name tells an assignment from the statements
	// that only look like one: SET ROLE x, SET TRANSACTION …, SET GLOBAL x = 1.
	end := nameEnd(toks, i)
	if end+1 >= len(toks) || !toks[end+1].isPunct("=") && !toks[end+1].is("TO") {
		return unknownEffect(toks, sql)
	}
	if hasMoreAssignments(toks[end+2:]) {
		return unknownEffect(toks, sql)
	}
	return settingEffect(kind, toks, i, sql)
}

// hasMoreAssignments reports whether more assignments follow: a = 1, b = 2.
func hasMoreAssignments(value []token) bool {
	depth, comma := 0, false
	for _, t := range value {
		switch {
		case t.isPunct("(") || t.isPunct("[") || t.isPunct("{"):
			depth++
		case t.isPunct(")") || t.isPunct("]") || t.isPunct("}"):
			depth--
		case depth == 0 && t.isPunct(","):
			comma = true
		case depth == 0 && comma && t.isPunct("="):
			return true
		}
	}
	return false
}

func resetEffect(toks []token, sql string) []Effect {
	i, kind := 1, EffectSetting
	if i < len(toks) && toks[i].is("SESSION") && i+1 < len(toks) {
		i, kind = i+1, EffectSessionSetting
	}
	if i >= len(toks) || toks[i].is("ALL") || nameEnd(toks, i)+1 != len(toks) {
		return unknownEffect(toks, sql)
	}
	return settingEffect(kind, toks, i, sql)
}

func deallocateEffect(toks []token, sql string) []Effect {
	i := 1
	if len(toks) > 2 && toks[1].is("PREPARE") {
		i++
	}
	if i >= len(toks) || toks[i].is("ALL") {
		return unknownEffect(toks, sql)
	}
	return namedEffect(EffectDeallocate, toks, i, sql)
}

// namedEffect is the effect whose possibly qualified name begins at toks[i].
func namedEffect(k EffectKind, toks []token, i int, sql string) []Effect {
	name := nameAt(toks, i, sql)
	if name == "" {
		return []Effect{{Kind: EffectUnknown}}
	}
	return []Effect{{Kind: k, Name: name}}
}

// nameAt is the possibly qualified name that begins at toks[i], as written, or
// empty.
func nameAt(toks []token, i int, sql string) string {
	if i >= len(toks) || !toks[i].isName() && toks[i].kind != stringToken {
		return ""
	}
	return sql[toks[i].start:toks[nameEnd(toks, i)].end]
}

// nameEnd is the index of the last token of the name that begins at toks[i].
func nameEnd(toks []token, i int) int {
	for i+2 < len(toks) && toks[i+1].isPunct(".") && toks[i+2].isName() {
		i += 2
	}
	return i
}

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
	if toks[at].is("FOREIGN") && at+1 < len(toks) && toks[at+1].is("TABLE") {
		at++
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
	if at, _ := findObjectKind(toks); at < 0 || toks[at].is("MACRO", "FUNCTION") {
		return unknownEffect(toks, sql) // a secret, a variable, or what may be temporary and not its own
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
