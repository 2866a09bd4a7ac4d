package main

import (
	"regexp"
	"strings"
)

// A splitter cuts SQL text into statements at the semicolons outside of quotes,
// comments and dollar quotes, as the text comes line by line.
type splitter struct {
	buf   strings.Builder
	mode  byte   // what is open: a quote, 'e' for that of E'…', '-' or '*' for a comment, '$', or 0
	tag   string // of an open dollar quote
	depth int    // of nested comments
	some  bool   // there is more than white space and comments
}

var dollarQuote = regexp.MustCompile(`^\$([A-Za-z_][A-Za-z0-9_]*)?\$`)

// feed adds a line and returns the statements that it ends, without their semicolons.
func (s *splitter) feed(line string) (statements []string) {
	for i := 0; i < len(line); {
		n := s.step(line[i:], i > 0 && isWord(line[i-1]))
		if s.mode == 0 && n == 1 && line[i] == ';' {
			if s.some {
				statements = append(statements, strings.TrimSpace(s.buf.String()))
			}
			*s = splitter{}
		} else {
			s.buf.WriteString(line[i : i+n])
		}
		i += n
	}
	return statements
}

// step takes the next token of text, and returns its length.
func (s *splitter) step(text string, inWord bool) int {
	pair := text[:min(2, len(text))]
	switch s.mode {
	case '-': // CR alone ends a line as well, as many servers read it
		if text[0] == '\n' || text[0] == '\r' {
			s.mode = 0
		}
	case '*':
		switch pair {
		case "*/":
			if s.depth--; s.depth == 0 {
				s.mode = 0
			}
			return 2
		case "/*":
			s.depth++
			return 2
		}
	case '$':
		if strings.HasPrefix(text, s.tag) {
			s.mode = 0
			return len(s.tag)
		}
	case 'e':
		switch {
		case text[0] == '\\' || pair == "''":
			return len(pair)
		case text[0] == '\'':
			s.mode = 0
		}
	case 0:
		return s.open(text, pair, inWord)
	default: // a doubled quote ends and begins again
		if text[0] == s.mode {
			s.mode = 0
		}
	}
	return 1
}

// open takes a token outside of quotes and comments.
func (s *splitter) open(text, pair string, inWord bool) int {
	c := text[0]
	switch {
	case pair == "--":
		s.mode = '-'
		return 2
	case pair == "/*":
		s.mode, s.depth = '*', 1
		return 2
	case !inWord && (pair == "E'" || pair == "e'"): // a backslash in it takes what follows as it is
		s.mode, s.some = 'e', true
		return 2
	case c == '\'' || c == '"' || c == '`':
		s.mode = c
	case c == '$' && !inWord:
		if s.tag = dollarQuote.FindString(text); s.tag != "" {
			s.mode, s.some = '$', true
			return len(s.tag)
		}
	case c == ';' || strings.TrimSpace(text[:1]) == "":
		return 1
	}
	s.some = true
	return 1
}

// rest is the statement that no semicolon has ended, if there is one. A comment that is
// not closed is a part of it: statements may stand in there that were to be run.
func (s *splitter) rest() string {
	if !s.some && s.mode != '*' {
		return ""
	}
	return strings.TrimSpace(s.buf.String())
}

// blank reports whether a statement is not begun: a line may be a command of the shell.
func (s *splitter) blank() bool { return !s.some && (s.mode == 0 || s.mode == '-') }

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80
}

// withoutComments is a statement with a space for each character of a comment.
func withoutComments(sql string) string {
	if !strings.Contains(sql, "--") && !strings.Contains(sql, "/*") {
		return sql
	}
	var s splitter
	var bare strings.Builder
	for i := 0; i < len(sql); {
		before := s.mode
		n := s.step(sql[i:], i > 0 && isWord(sql[i-1]))
		if isComment(before) || isComment(s.mode) {
			bare.WriteByte(' ')
		} else {
			bare.WriteString(sql[i : i+n])
		}
		i += n
	}
	return strings.TrimSpace(bare.String())
}

// mayChange reports whether a statement may change something. What has the word of a change
// within quotes is taken for one, too.
func mayChange(sql string) bool {
	sql = withoutComments(sql)
	return !readText.MatchString(sql) || changeText.MatchString(sql)
}

func isComment(mode byte) bool { return mode == '-' || mode == '*' }

// Control of transactions is not sent as text: the pool keeps the account of transactions. Of the forms that servers take the shell
// carries out a few; what a statement was to do is told by its verb.
var (
	beginsTx = regexp.MustCompile(`(?i)^(BEGIN|START|XA\s+(BEGIN|START))\b`)
	undoesTx = regexp.MustCompile(`(?i)^(ROLLBACK|ABORT)\b`) // or a part of it

	beginText    = regexp.MustCompile(`(?is)^(BEGIN|START)(\s+(TRANSACTION|WORK))?$`)
	commitText   = regexp.MustCompile(`(?is)^(COMMIT|END)(\s+(TRANSACTION|WORK))?$`)
	rollbackText = regexp.MustCompile(`(?is)^(ROLLBACK|ABORT)(\s+(TRANSACTION|WORK))?$`)

	readText   = regexp.MustCompile(`(?i)^[\s(]*(SELECT|FROM|VALUES|TABLE|WITH|PIVOT|UNPIVOT|SHOW|DESCRIBE|DESC|SUMMARIZE|EXPLAIN)\b`)
	changeText = regexp.MustCompile(`(?i)\b(INSERT|UPDATE|DELETE|MERGE|INTO|ANALYZE)\b|->>\s*(` + // Snowflake's: another statement follows
		`ALTER|BEGIN|CALL|COMMIT|COPY|CREATE|DROP|EXECUTE|GRANT|PUT|REMOVE|REVOKE|ROLLBACK|SET|TRUNCATE|UNDROP|UNSET|USE)\b`)

	savepointText = regexp.MustCompile(`(?is)^(SAVEPOINT|RELEASE(?:\s+SAVEPOINT)?|ROLLBACK\s+TO(?:\s+SAVEPOINT)?)\s+(\S+)$`)
)
