package sqlscan

import "slices"

// parseAccepted classifies sql as a server of dialect d would run it: nothing from the first
// unknown verb on, nor from the last statement on if a quote in it has no end; SQLite runs what
// stands before, and takes a comment without an end for one. cut says that there is such a rest.
func parseAccepted(sql string, d dialect) (s Script, cut bool) {
	l := lexer{d: d, sql: sql}
	toks := l.scan()
	cut = l.unclosed != ""
	if l.unclosed == "quote" {
		for len(toks) > 0 && !toks[len(toks)-1].isPunct(";") {
			toks = toks[:len(toks)-1]
		}
	}
	for _, part := range split(toks) {
		st := statementOf(part, sql)
		if !st.KnownVerb && !d.slashComments { // Snowflake has many that are in no table
			return s, true
		}
		s.Statements = append(s.Statements, st)
	}
	return s, cut
}

// mergeOtherReading takes note of what the text does on a server that cuts it otherwise.
func (s *Script) mergeOtherReading(other Script, cut bool) {
	if s.Empty() {
		return
	}
	s.othersReadSeveral = s.othersReadSeveral || !other.Empty() && (cut || !other.Atomic())
	changes := false
	for _, st := range other.Statements {
		changes = changes || !st.ReadOnly
	}
	for i := range s.Statements {
		s.Statements[i].ReadOnly = s.Statements[i].ReadOnly && !changes
	}
	more := other.TxControl() != "" && s.TxControl() == ""
	known := s.Effects()
	for _, e := range other.Effects() {
		more = more || !slices.Contains(known, e)
	}
	if more && !slices.Contains(known, Effect{Kind: EffectUnknown}) {
		st := &s.Statements[0]
		st.Effects = append(slices.Clip(st.Effects), Effect{Kind: EffectUnknown})
	}
}
