package sqlscan

// verb is a line of the table: what the statements of one leading verb do.
type verb struct {
	rows  Rows // whether they answer with a result set
	reads bool // running one twice is the same as running it once
	tx    bool // they begin or end a transaction or savepoint

	// follows says that one can be the main statement behind a WITH.
	follows bool

	// look settles what depends on the words after the verb. Nil: nothing.
	look func(st *Statement, toks []token, sql string)

	// leaves tells what one that does not only read leaves in the session.
	// Nil: nothing. What takes an effect back is in effect.go.
	leaves func(toks []token, sql string) []Effect
}

// verbs is the table. WITH, EXPLAIN and PREPARE have other statements inside:
// see statement.go. Servers have more verbs than stand here; of those nothing
// is known.
var verbs = map[string]verb{
	"SELECT":       {rows: RowsSome, reads: true, follows: true, look: lookInto},
	"VALUES":       {rows: RowsSome, reads: true, follows: true, look: lookInto},
	"TABLE":        {rows: RowsSome, reads: true, follows: true, look: lookInto},
	"FROM":         {rows: RowsSome, reads: true, follows: true, look: lookInto},
	"PIVOT":        {rows: RowsSome, reads: true, follows: true},
	"PIVOT_WIDER":  {rows: RowsSome, reads: true, follows: true},
	"PIVOT_LONGER": {rows: RowsSome, reads: true, follows: true},
	"UNPIVOT":      {rows: RowsSome, reads: true, follows: true},
	"SUMMARIZE":    {rows: RowsSome, reads: true, follows: true},
	"SHOW":         {rows: RowsSome, reads: true},
	"DESCRIBE":     {rows: RowsSome, reads: true},
	"DESC":         {rows: RowsSome, reads: true},
	"EXPLAIN":      {rows: RowsSome, reads: true},
	"EXISTS":       {rows: RowsSome, reads: true},
	"LIST":         {rows: RowsSome, reads: true},
	"HELP":         {rows: RowsSome, reads: true},

	"INSERT":  {rows: RowsNone, follows: true, look: lookReturning},
	"UPDATE":  {rows: RowsNone, follows: true, look: lookReturning},
	"DELETE":  {rows: RowsNone, follows: true, look: lookReturning},
	"MERGE":   {rows: RowsNone, follows: true, look: lookReturning},
	"REPLACE": {rows: RowsNone, follows: true, look: lookReturning},
	"UPSERT":  {rows: RowsNone, follows: true, look: lookReturning},
	"COPY":    {rows: RowsNone, look: lookCopy},
	"EXPORT":  {rows: RowsNone},
	"IMPORT":  {rows: RowsNone, leaves: anything}, // it runs a script

	"CREATE":   {rows: RowsNone, leaves: createEffect},
	"ALTER":    {rows: RowsNone, leaves: alterEffect},
	"DROP":     {rows: RowsNone, leaves: dropEffect},
	"TRUNCATE": {rows: RowsNone},
	"RENAME":   {rows: RowsNone},
	"COMMENT":  {rows: RowsNone},
	"GRANT":    {rows: RowsNone},
	"REVOKE":   {rows: RowsNone},

	"VACUUM":     {rows: RowsNone},
	"ANALYZE":    {rows: RowsNone, look: lookAnalyze},
	"CHECKPOINT": {rows: RowsNone},
	"FORCE":      {rows: RowsUnknown, look: lookForce, leaves: forceEffect},
	"REINDEX":    {rows: RowsNone},
	"CLUSTER":    {rows: RowsNone},
	"REFRESH":    {rows: RowsNone},
	"NOTIFY":     {rows: RowsNone},
	"OPTIMIZE":   {rows: RowsUnknown}, // with rows in Dremio and MySQL, without in ClickHouse
	"MSCK":       {rows: RowsUnknown},

	"SET":        {rows: RowsNone, leaves: setEffect},
	"RESET":      {rows: RowsNone, leaves: resetEffect},
	"USE":        {rows: RowsNone, leaves: useEffect},
	"PRAGMA":     {rows: RowsUnknown, look: lookPragma, leaves: pragmaEffect},
	"ATTACH":     {rows: RowsNone, leaves: anything},
	"DETACH":     {rows: RowsNone, leaves: anything},
	"LOAD":       {rows: RowsNone, leaves: anything},
	"INSTALL":    {rows: RowsNone, leaves: anything},
	"DEALLOCATE": {rows: RowsNone, leaves: deallocateEffect},
	"EXECUTE":    {rows: RowsSome, leaves: anything},
	"EXEC":       {rows: RowsSome, leaves: anything},
	"CALL":       {rows: RowsSome, look: lookCall, leaves: anything},
	"DO":         {rows: RowsNone, leaves: anything},
	"DECLARE":    {rows: RowsNone, leaves: anything},
	"FETCH":      {rows: RowsSome}, // from what DECLARE has left
	"MOVE":       {rows: RowsNone},
	"CLOSE":      {rows: RowsNone},
	"LISTEN":     {rows: RowsNone, leaves: anything},
	"UNLISTEN":   {rows: RowsNone, leaves: anything},
	"DISCARD":    {rows: RowsNone, leaves: anything},
	"LOCK":       {rows: RowsNone, leaves: anything},
	"UNLOCK":     {rows: RowsNone, leaves: anything},
	"KILL":       {rows: RowsNone, leaves: anything},

	"BEGIN":     {rows: RowsNone, tx: true},
	"START":     {rows: RowsNone, tx: true},
	"COMMIT":    {rows: RowsNone, tx: true},
	"END":       {rows: RowsNone, tx: true},
	"ROLLBACK":  {rows: RowsNone, tx: true},
	"ABORT":     {rows: RowsNone, tx: true},
	"SAVEPOINT": {rows: RowsNone, tx: true},
	"RELEASE":   {rows: RowsNone, tx: true},
	"XA":        {rows: RowsUnknown, tx: true},
}

// anything is left by statements whose effect does not stand in their text, or
// has nothing to take it back: procedures, attached databases, extensions.
func anything([]token, string) []Effect { return []Effect{{Kind: EffectUnknown}} }

// lookInto finds the SELECT … INTO that makes a table, file or variable, and
// Hive's FROM … INSERT.
func lookInto(st *Statement, toks []token, _ string) {
	if st.Verb == "FROM" && hasTop(toks, "INSERT") {
		st.Rows, st.ReadOnly = RowsNone, false
		return
	}
	at := top(toks, "INTO")
	if at < 0 {
		return
	}
	st.Rows, st.ReadOnly = RowsNone, false
	if rest := toks[at+1:]; len(rest) == 0 || !rest[0].name() || rest[0].is("TEMP", "TEMPORARY", "LOCAL", "GLOBAL", "OUTFILE", "DUMPFILE") {
		st.Effects = []Effect{{Kind: EffectUnknown}}
	}
}

func lookReturning(st *Statement, toks []token, sql string) {
	at := top(toks, "OUTPUT")
	if hasTop(toks, "RETURNING") || at >= 0 && at+1 < len(toks) && toks[at+1].is("INSERTED", "DELETED") {
		st.Rows = RowsSome
	}
	switch {
	case st.Verb == "UPDATE" && len(toks) > 1 && toks[1].is("EXTENSIONS"):
		st.Rows = RowsSome
	case st.Verb == "INSERT":
		if at := top(toks, "INTO"); at >= 0 {
			st.InsertInto = nameAt(toks, at+1, sql)
		}
	}
}

func lookCopy(st *Statement, toks []token, _ string) {
	if hasAny(toks, "RETURN_FILES", "RETURN_STATS") {
		st.Rows = RowsSome
	}
	st.Steps = len(toks) > 2 && toks[1].is("FROM") && toks[2].is("DATABASE")
}

// lookAnalyze tells MariaDB's ANALYZE of a statement, which executes it, from
// the gathering of statistics.
func lookAnalyze(st *Statement, toks []token, _ string) {
	if len(toks) > 1 && toks[1].is("SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "FORMAT") {
		st.Rows, st.Wrapped = RowsSome, true
	}
}

func isCheckpoint(toks []token) bool { return len(toks) > 1 && toks[1].is("CHECKPOINT") }

func lookForce(st *Statement, toks []token, _ string) {
	if isCheckpoint(toks) {
		st.Rows = RowsNone
	}
}

func forceEffect(toks []token, sql string) []Effect {
	if isCheckpoint(toks) {
		return nil
	}
	return anything(toks, sql)
}

// lookCall knows DuckDB's functions that only report.
func lookCall(st *Statement, toks []token, _ string) {
	if len(toks) > 2 && toks[2].punct("(") && reports(toks[1]) {
		st.ReadOnly = true
	}
}

// Verbs are the verbs of the table, in no order.
func Verbs() []string {
	out := make([]string, 0, len(verbs)+2)
	for v := range verbs {
		out = append(out, v)
	}
	return append(out, "WITH", "PREPARE")
}
