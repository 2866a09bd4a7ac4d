package sqlscan

import (
	"slices"
	"strings"
)

// reportingPragmas only report, in DuckDB or SQLite.
var reportingPragmas = wordSet(`collations database_list database_size extension_versions functions metadata_info platform show show_databases
	show_tables show_tables_expanded storage_info table_info user_agent version
	compile_options foreign_key_list function_list index_info index_list index_xinfo integrity_check module_list pragma_list quick_check
	table_list table_xinfo`)

// effectlessPragmas have no rows and no trace in the session.
var effectlessPragmas = wordSet("force_checkpoint add_parquet_key")

// pragma is the name of a PRAGMA in upper case, and whether it is an assignment.
func pragma(toks []token) (name string, at int, assigned bool) {
	if len(toks) < 2 || !toks[1].isName() {
		return "", 1, false
	}
	end := nameEnd(toks, 1)
	return upperName(toks[end]), end, end+1 < len(toks) && toks[end+1].isPunct("=")
}

func refinePragma(st *Statement, toks []token, _ string) {
	name, at, assigned := pragma(toks)
	switch {
	case assigned, effectlessPragmas[name]:
		st.Rows = RowsNone
	case reportingPragmas[name]:
		st.Rows, st.ReadOnly = RowsSome, true
	case hasAnyPrefix(name, "ENABLE_", "DISABLE_", "VERIFY_"):
		st.Rows = RowsNone
	default:
		st.RunsInSteps = at+1 < len(toks) && toks[at+1].isPunct("(") // DuckDB's import_database and copy_database stand for statements
	}
}

func pragmaEffect(toks []token, sql string) []Effect {
	name, at, assigned := pragma(toks)
	switch {
	case assigned:
		return settingEffect(EffectSetting, toks, at, sql)
	case effectlessPragmas[name]:
		return nil
	default:
		return unknownEffect(toks, sql)
	}
}

// sessionFunctions change the session that calls them.
var sessionFunctions = wordSet(`set_config set_limit setseed dblink load_extension get_lock release_lock release_all_locks
	enable_logging disable_logging enable_profiling disable_profiling enable_peg_parser disable_peg_parser
	json_execute_serialized_sql sqlite_attach postgres_attach load_aws_credentials ducklake_set_commit_message`)

// linkedSettings are settings of DuckDB's that change others, also when they are put
// back.
var linkedSettings = map[string]bool{"enable_http_logging": true, "progress_bar_time": true}

// implied are the settings of the whole server that a function or a setting of DuckDB's changes without naming them.
var implied = map[string][]string{
	"enable_logging": logging, "disable_logging": logging, "enable_http_logging": logging,
	"enable_peg_parser": {"allow_parser_override_extension"}, "disable_peg_parser": {"allow_parser_override_extension"},
}

var logging = []string{"enable_logging", "logging_level", "logging_mode", "logging_storage", "enabled_log_types", "disabled_log_types"}

// impliedSettings are the effects of a function or setting, by its name in lower case, on settings that it does not name.
func impliedSettings(of string) (left []Effect) {
	for _, name := range implied[of] {
		left = append(left, Effect{Kind: EffectImpliedSetting, Name: name})
	}
	return left
}

// changingFunctions change what lies outside of the session.
var changingFunctions = wordSet(`nextval setval write_log checkpoint force_checkpoint truncate_duckdb_logs pg_notify pg_terminate_backend
	pg_cancel_backend pg_switch_wal pg_create_restore_point pg_reload_conf pg_rotate_logfile pg_promote pg_logical_emit_message
	pg_drop_replication_slot pg_replication_slot_advance postgres_execute postgres_query mysql_execute mysql_query odbc_exec odbc_query dbgen dsdgen generateserialid
	ducklake_expire_snapshots ducklake_cleanup_old_files ducklake_delete_orphaned_files ducklake_merge_adjacent_files
	ducklake_rewrite_data_files ducklake_add_data_files ducklake_flush_inlined_data ducklake_set_option`)

// functionEffects tells whether a function does more than compute, and what it leaves in
// the session. args are the tokens behind its parenthesis.
func functionEffects(function token, args []token) (left []Effect, changes bool) {
	name := upperName(function)
	switch {
	case name == "QUERY":
		return queryFunctionEffects(args)
	case sessionFunctions[name], hasAnyPrefix(name, "PG_ADVISORY_", "PG_TRY_ADVISORY_", "PG_REPLICATION_ORIGIN_", "PG_BACKUP_", "DBLINK_"):
		return append(impliedSettings(strings.ToLower(name)), Effect{Kind: EffectUnknown}), true
	case changingFunctions[name], hasAnyPrefix(name, "LO_", "PG_LOGICAL_SLOT_GET_", "PG_CREATE_LOGICAL_", "PG_CREATE_PHYSICAL_", "PG_STAT_RESET"):
		return nil, true
	default:
		return nil, false
	}
}

// addFunction is for a function in the statement that does more than compute. What it leaves
// in the session is there also if the rest of the statement fails.
func (st *Statement) addFunction(left ...Effect) {
	st.ReadOnly = false
	st.RunsInSteps = st.RunsInSteps || len(left) > 0
	st.Effects = append(st.Effects, left...)
}

// takesFromSequence reports whether toks[i] ends NEXT VALUE FOR, which is a nextval without
// parentheses, or is the NEXTVAL of seq.NEXTVAL or NEXTVAL FOR seq.
func takesFromSequence(toks []token, i int) bool {
	switch {
	case toks[i].is("FOR"):
		return i > 1 && toks[i-1].is("VALUE") && toks[i-2].is("NEXT") || toks[i-1].is("NEXTVAL")
	default:
		return toks[i].is("NEXTVAL") && toks[i-1].isPunct(".")
	}
}

// queryFunctionEffects tells what DuckDB's query(…), which runs a text, does. The text may be a quoted
// name, too. A list of columns is none: INSERT INTO query (a, b).
func queryFunctionEffects(args []token) (left []Effect, changes bool) {
	if len(args) > 0 && (args[0].kind == stringToken || args[0].kind == quotedToken) && closingParen(args[:min(len(args), 2)], 0) == 1 {
		s := Parse(unquote(args[0].text))
		if args[0].kind == quotedToken && (len(s.Statements) == 0 || !s.Statements[0].KnownVerb) {
			return nil, false // a column
		}
		return s.Effects(), !s.ReadOnly()
	}
	for _, t := range args {
		switch {
		case t.isPunct(")"):
			return nil, false
		case !t.isName() && !t.isPunct(","):
			return []Effect{{Kind: EffectUnknown}}, true // which text is known only when it runs
		}
	}
	return nil, false
}

// onlyReports tells whether a function called by CALL is one of DuckDB's that only
// report.
func onlyReports(function token) bool {
	name := upperName(function)
	return strings.HasPrefix(name, "DUCKDB_") || strings.HasPrefix(name, "PRAGMA_")
}

// upperName is a name in upper case, without quotes.
func upperName(t token) string {
	if t.kind == wordToken {
		return t.text
	}
	return strings.ToUpper(unquote(t.text))
}

func hasAnyPrefix(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

func wordSet(list string) map[string]bool {
	m := make(map[string]bool)
	for _, w := range strings.Fields(strings.ToUpper(list)) {
		m[w] = true
	}
	return m
}

// pivotsByData reports whether a PIVOT of the statement, wherever it stands,
// takes its columns from the data. DuckDB makes a temporary type of their values
// then, before anything else of the statement, and keeps it. A statement with more
// than maxNesting PIVOTs is taken for one, since each is read to its end.
func pivotsByData(toks []token) bool {
	pivots := 0
	for i, t := range toks {
		if !t.is("PIVOT", "PIVOT_WIDER") {
			continue
		}
		pivots++
		if pivots > maxNesting || takesColumnsFromData(toks[i+1:closingParen(toks, i+1)]) {
			return true
		}
	}
	return false
}

// takesColumnsFromData reports whether a column behind ON has no list of values. toks
// is what follows a PIVOT in its parentheses.
func takesColumnsFromData(toks []token) bool {
	at := indexOutsideParens(toks, "ON")
	if at < 0 {
		return false
	}
	toks = toks[at+1:]
	if end := indexOutsideParens(toks, "USING", "GROUP", "ORDER", "LIMIT", "UNION", "EXCEPT", "INTERSECT"); end >= 0 {
		toks = toks[:end]
	}
	start := 0
	for i, t := range outsideParens(toks) {
		if !t.isPunct(",") {
			continue
		}
		if !endsInValues(toks[start:i]) {
			return true
		}
		start = i + 1
	}
	return !endsInValues(toks[start:])
}

// endsInValues tells "a IN (1, 2)", or "a IN type", from an expression that only
// contains an IN, and from "a IN (SELECT …)".
func endsInValues(toks []token) bool {
	at := indexOutsideParens(toks, "IN")
	if at < 0 || at+1 == len(toks) {
		return false
	}
	if toks[at+1].isPunct("(") {
		return closingParen(toks, at+2) == len(toks)-1 && !hasAny(toks[at+2:], "SELECT", "FROM", "VALUES", "TABLE", "WITH")
	}
	return nameEnd(toks, at+1) == len(toks)-1
}
