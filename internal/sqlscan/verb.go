package sqlscan

import (
	"slices"
	"strings"
)

// verb is a line of the table: what the statements of one leading verb do.
type verb struct {
	rows     Rows // whether they answer with a result set
	readOnly bool // running one twice is the same as running it once
	tx       bool // they begin or end a transaction or savepoint

	// afterWith says that one can be the main statement behind a WITH.
	afterWith bool

	// refine settles what depends on the words after the verb. Nil: nothing.
	refine func(st *Statement, toks []token, sql string)

	// effects tells what one that does not only read leaves in the session.
	// Nil: nothing. What takes an effect back is in effect.go.
	effects func(toks []token, sql string) []Effect
}

// verbs is the table. WITH, EXPLAIN and PREPARE have other statements inside:
// see statement.go. Servers have more verbs than stand here; of those nothing
// is known.
var verbs = map[string]verb{
	"SELECT":       {rows: RowsSome, readOnly: true, afterWith: true, refine: refineInto},
	"VALUES":       {rows: RowsSome, readOnly: true, afterWith: true, refine: refineInto},
	"TABLE":        {rows: RowsSome, readOnly: true, afterWith: true, refine: refineInto},
	"FROM":         {rows: RowsSome, readOnly: true, afterWith: true, refine: refineInto},
	"PIVOT":        {rows: RowsSome, readOnly: true, afterWith: true},
	"PIVOT_WIDER":  {rows: RowsSome, readOnly: true, afterWith: true},
	"PIVOT_LONGER": {rows: RowsSome, readOnly: true, afterWith: true},
	"UNPIVOT":      {rows: RowsSome, readOnly: true, afterWith: true},
	"SUMMARIZE":    {rows: RowsSome, readOnly: true, afterWith: true},
	"SHOW":         {rows: RowsSome, readOnly: true},
	"DESCRIBE":     {rows: RowsSome, readOnly: true},
	"DESC":         {rows: RowsSome, readOnly: true},
	"EXPLAIN":      {rows: RowsSome, readOnly: true},
	"EXISTS":       {rows: RowsSome, readOnly: true},
	"LIST":         {rows: RowsSome, readOnly: true},
	"HELP":         {rows: RowsSome, readOnly: true},

	"INSERT":  {rows: RowsNone, afterWith: true, refine: refineReturning},
	"UPDATE":  {rows: RowsNone, afterWith: true, refine: refineReturning, effects: updateEffect},
	"DELETE":  {rows: RowsNone, afterWith: true, refine: refineReturning},
	"MERGE":   {rows: RowsNone, afterWith: true, refine: refineReturning},
	"REPLACE": {rows: RowsNone, afterWith: true, refine: refineReturning},
	"UPSERT":  {rows: RowsNone, afterWith: true, refine: refineReturning},
	"COPY":    {rows: RowsNone, refine: refineCopy},
	"EXPORT":  {rows: RowsNone},
	"IMPORT":  {rows: RowsNone, effects: unknownEffect}, // it runs a script

	"CREATE":   {rows: RowsNone, effects: createEffect},
	"ALTER":    {rows: RowsNone, refine: refineAlter, effects: alterEffect},
	"DROP":     {rows: RowsNone, effects: dropEffect},
	"TRUNCATE": {rows: RowsNone},
	"RENAME":   {rows: RowsNone},
	"COMMENT":  {rows: RowsNone},
	"GRANT":    {rows: RowsNone},
	"REVOKE":   {rows: RowsNone},

	"VACUUM":     {rows: RowsNone},
	"ANALYZE":    {rows: RowsNone, refine: refineAnalyze},
	"CHECKPOINT": {rows: RowsNone},
	"FORCE":      {rows: RowsUnknown, refine: refineForce, effects: forceEffect},
	"REINDEX":    {rows: RowsNone},
	"CLUSTER":    {rows: RowsNone},
	"REFRESH":    {rows: RowsNone},
	"NOTIFY":     {rows: RowsNone},
	"OPTIMIZE":   {rows: RowsUnknown}, // with rows in Dremio and MySQL, without in ClickHouse
	"MSCK":       {rows: RowsUnknown},

	"SET":        {rows: RowsNone, refine: refineSet, effects: setEffect},
	"RESET":      {rows: RowsNone, effects: resetEffect},
	"USE":        {rows: RowsNone, effects: useEffect},
	"PRAGMA":     {rows: RowsUnknown, refine: refinePragma, effects: pragmaEffect},
	"ATTACH":     {rows: RowsNone, effects: unknownEffect},
	"DETACH":     {rows: RowsNone, effects: unknownEffect},
	"LOAD":       {rows: RowsNone, effects: unknownEffect},
	"INSTALL":    {rows: RowsNone, effects: unknownEffect},
	"DEALLOCATE": {rows: RowsNone, effects: deallocateEffect},
	"EXECUTE":    {rows: RowsSome, effects: unknownEffect},
	"EXEC":       {rows: RowsSome, effects: unknownEffect},
	"CALL":       {rows: RowsSome, refine: refineCall, effects: unknownEffect},
	"DO":         {rows: RowsNone, effects: unknownEffect},
	"DECLARE":    {rows: RowsNone, effects: unknownEffect},
	"FETCH":      {rows: RowsSome}, // from what DECLARE has left
	"MOVE":       {rows: RowsNone},
	"CLOSE":      {rows: RowsNone},
	"LISTEN":     {rows: RowsNone, effects: unknownEffect},
	"UNLISTEN":   {rows: RowsNone, effects: unknownEffect},
	"DISCARD":    {rows: RowsNone, effects: unknownEffect},
	"LOCK":       {rows: RowsNone, effects: unknownEffect},
	"UNLOCK":     {rows: RowsNone, effects: unknownEffect},
	"KILL":       {rows: RowsNone, effects: unknownEffect},

	"BEGIN":     {rows: RowsNone, tx: true},
	"START":     {rows: RowsNone, tx: true},
	"COMMIT":    {rows: RowsNone, tx: true},
	"END":       {rows: RowsNone, tx: true},
	"ROLLBACK":  {rows: RowsNone, tx: true, refine: refineRollback},
	"ABORT":     {rows: RowsNone, tx: true},
	"SAVEPOINT": {rows: RowsNone, tx: true},
	"RELEASE":   {rows: RowsNone, tx: true},
	"XA":        {rows: RowsUnknown, tx: true},
}

// unknownEffect is left by statements whose effect does not stand in their text, or
// has nothing to take it back: procedures, attached databases, extensions.
func unknownEffect([]token, string) []Effect { return []Effect{{Kind: EffectUnknown}} }

// refineInto finds the SELECT … INTO that makes a table, file or variable, and
// Hive's FROM … INSERT.
func refineInto(st *Statement, toks []token, _ string) {
	if st.Verb == "FROM" {
		for i, t := range outsideParens(toks) {
			if t.is("INSERT") && i+1 < len(toks) && toks[i+1].is("INTO", "OVERWRITE") { // else a name
				st.Rows, st.ReadOnly = RowsNone, false
				return
			}
		}
	}
	at := indexOutsideParens(toks, "INTO")
	if at < 0 {
		return
	}
	st.Rows, st.ReadOnly = RowsNone, false
	rest := toks[at+1:]
	for len(rest) > 0 && rest[0].is("UNLOGGED", "TABLE") {
		rest = rest[1:]
	}
	if len(rest) == 0 || !rest[0].isName() || nameIsTemporary(rest) || rest[0].is("TEMP", "TEMPORARY", "LOCAL", "GLOBAL", "OUTFILE", "DUMPFILE") {
		st.Effects = []Effect{{Kind: EffectUnknown}}
	}
}

// namesTemporarySchema reports whether PostgreSQL's schema of temporary objects is among the names that a setting gets.
func namesTemporarySchema(value []token) bool {
	return slices.ContainsFunc(value, func(t token) bool { return strings.Contains(strings.ToUpper(t.text), "PG_TEMP") })
}

// refineRollback knows Dremio's ROLLBACK TABLE t TO SNAPSHOT '…', by which a table is what it was.
func refineRollback(st *Statement, toks []token, _ string) {
	st.TxControl = len(toks) < 3 || !toks[1].is("TABLE")
}

func refineReturning(st *Statement, toks []token, sql string) {
	at := indexOutsideParens(toks, "OUTPUT")
	if hasOutsideParens(toks, "RETURNING") || at >= 0 && at+1 < len(toks) && toks[at+1].is("INSERTED", "DELETED") {
		st.Rows = RowsSome
	}
	switch {
	case st.Verb == "UPDATE" && len(toks) > 1 && toks[1].is("EXTENSIONS"):
		st.Rows = RowsSome
	case st.Verb == "INSERT":
		if at := indexOutsideParens(toks, "INTO"); at >= 0 {
			st.InsertInto, st.InsertColumns, st.ComputesRows = nameAt(toks, at+1, sql), columnList(toks, at+1, sql), !insertsParams(toks)
		}
	}
}

// refineSet names the setting, whatever its value leaves in the session.
func refineSet(st *Statement, toks []token, sql string) {
	i := 1
	for i < len(toks) && toks[i].is("SESSION", "LOCAL", "GLOBAL") {
		i++
	}
	st.Sets = nameAt(toks, i, sql)
}

func refineCopy(st *Statement, toks []token, _ string) {
	if namesAny(toks, "RETURN_FILES", "RETURN_STATS") {
		st.Rows = RowsSome
	}
	st.RunsInSteps = len(toks) > 2 && toks[1].is("FROM") && toks[2].is("DATABASE")
}

// refineAlter finds the column that is added with a default. DuckDB adds it, computes it for
// each row and sets the default, each by a statement of its own.
func refineAlter(st *Statement, toks []token, _ string) {
	at := indexOutsideParens(toks, "ADD")
	st.RunsInSteps = at >= 0 && hasOutsideParens(toks[at:], "DEFAULT")
}

// refineAnalyze tells MariaDB's ANALYZE of a statement, which executes it, from
// the gathering of statistics.
func refineAnalyze(st *Statement, toks []token, _ string) {
	if len(toks) > 1 && toks[1].is("SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "FORMAT") {
		st.Rows, st.ChangesInsideQuery = RowsSome, true
	}
}

func isCheckpoint(toks []token) bool { return len(toks) > 1 && toks[1].is("CHECKPOINT") }

func refineForce(st *Statement, toks []token, _ string) {
	if isCheckpoint(toks) {
		st.Rows = RowsNone
	}
}

func forceEffect(toks []token, sql string) []Effect {
	if isCheckpoint(toks) {
		return nil
	}
	return unknownEffect(toks, sql)
}

// refineCall knows DuckDB's functions that only report.
func refineCall(st *Statement, toks []token, _ string) {
	if len(toks) > 2 && toks[2].isPunct("(") && onlyReports(toks[1]) {
		st.ReadOnly = true
	}
}

// updateEffect knows PostgreSQL's view of its settings: to change it is to set them.
func updateEffect(toks []token, sql string) []Effect {
	i := 1
	for i < len(toks) && (toks[i].is("ONLY") || toks[i].isPunct("(")) {
		i++
	}
	if i < len(toks) && toks[i].isName() && upperName(toks[nameEnd(toks, i)]) == "PG_SETTINGS" {
		return unknownEffect(toks, sql)
	}
	return nil
}

// useEffect tells another place from what no look at the place shows: a role, a branch, a name with @.
func useEffect(toks []token, sql string) []Effect {
	i := 1
	if len(toks) > 2 && toks[1].is("CATALOG", "DATABASE", "SCHEMA", "NAMESPACE") && !toks[2].isPunct(".") {
		i++
	}
	if nameAt(toks, i, sql) == "" || nameEnd(toks, i)+1 != len(toks) {
		return unknownEffect(toks, sql)
	}
	return []Effect{{Kind: EffectNamespace}}
}

// Verbs are the verbs of the table, in no order.
func Verbs() []string {
	out := make([]string, 0, len(verbs)+2)
	for v := range verbs {
		out = append(out, v)
	}
	return append(out, "WITH", "PREPARE")
}
