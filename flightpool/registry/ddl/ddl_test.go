package ddl_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry/ddl"
)

// known is what the servers of these tests have for options.
func known(option string) bool { return option == "width" }

func TestStatementsAreWhatTheTextSays(t *testing.T) {
	all, err := ddl.Parse(`DROP SERVER IF EXISTS a, "B" CASCADE; DROP SERVER c`, nil)
	require.NoError(t, err)
	require.Equal(t, []ddl.Statement{
		{Position: ddl.Position{Line: 1, Column: 1}, Action: ddl.Drop, Server: "a", Lenient: true, Cascade: true},
		{Position: ddl.Position{Line: 1, Column: 1}, Action: ddl.Drop, Server: "B", Lenient: true, Cascade: true},
		{Position: ddl.Position{Line: 1, Column: 39}, Action: ddl.Drop, Server: "c"},
	}, all)
	_, err = ddl.Parse("DROP SERVER a -- \ufffd is a character", nil)
	require.NoError(t, err)
	_, err = ddl.Parse("DROP SERVER a;\nCREATE USER MAPPING FOR a SERVER s OPTIONS (password 'p\xe4ss')", nil)
	require.EqualError(t, err, "registry: line 2, column 56: the text is not UTF-8")
	_, err = ddl.Parse(`CREATE USER MAPPING FOR "PUBLIC" SERVER s`, nil)
	require.ErrorContains(t, err, "PUBLIC without quotes")
}

// Random statements, written in a random one of the ways in which SQL can say them,
// are read as what they were, each with its place.
func TestWhatIsWrittenIsRead(t *testing.T) {
	for seed := range uint64(500) {
		w := &writer{Rand: rand.New(rand.NewPCG(seed, 1))}
		var want []ddl.Statement
		for range w.IntN(5) {
			want = append(want, w.statement())
			w.gap(";")
		}
		got, err := ddl.Parse(w.text.String(), nil)
		require.NoError(t, err, "seed %d: %s", seed, w.text.String())
		require.Equal(t, want, got, "seed %d: %s", seed, w.text.String())
	}
}

// An option may have the name of a keyword, in double quotes: it is added then, not set or
// dropped.
func TestAQuotedKeywordIsTheNameOfAnOption(t *testing.T) {
	got, err := ddl.Parse(`ALTER SERVER s OPTIONS ("set" 'a', "drop" 'b', "add" 'c')`, nil)
	require.NoError(t, err)
	require.Len(t, got, 1)
	for _, o := range got[0].Options {
		require.Equal(t, ddl.Create, o.Action, o.Name)
	}
	_, err = ddl.Parse(`"create" SERVER s`, nil)
	require.ErrorContains(t, err, "expected CREATE, ALTER or DROP")
}

// A writer writes statements as text and knows where it is in it.
type writer struct {
	*rand.Rand
	text strings.Builder
}

func (w *writer) at() ddl.Position {
	text := w.text.String()
	line := strings.Count(text, "\n")
	return ddl.Position{Line: line + 1, Column: len([]rune(text[strings.LastIndex(text, "\n")+1:])) + 1}
}

// gap writes what may stand between two tokens, and then a token as it is.
func (w *writer) gap(token string) ddl.Position {
	gaps := []string{" ", "\n", "\t\r\n", "/* é /* ; */ ' */", "-- \"ü\n", "  "}
	for range 1 + w.IntN(2) {
		w.text.WriteString(gaps[w.IntN(len(gaps))])
	}
	at := w.at()
	w.text.WriteString(token)
	return at
}

// words writes keywords, in any case.
func (w *writer) words(text string) (first ddl.Position) {
	for i, word := range strings.Fields(text) {
		at := w.gap(string([]string{word, strings.ToLower(word)}[w.IntN(2)]))
		if i == 0 {
			first = at
		}
	}
	return first
}

// name writes a name, which is in quotes where it has to be, and may be elsewhere.
func (w *writer) name() (string, ddl.Position) {
	name := []string{"s", "drop", "a.b_$1", "Ann Lee", `say "hi"`, "é", "width", "semi;colon"}[w.IntN(8)]
	plain := !strings.ContainsAny(name, `A ";`)
	if plain && w.IntN(2) == 0 {
		return name, w.gap([]string{name, strings.ToUpper(name)}[w.IntN(2)])
	}
	return name, w.gap(`"` + strings.ReplaceAll(name, `"`, `""`) + `"`)
}

func (w *writer) value() string {
	value := []string{"", "it's", "a\nb", "-- no comment", `"`, "é;/*"}[w.IntN(6)]
	w.gap("'" + strings.ReplaceAll(value, "'", "''") + "'")
	return value
}

func (w *writer) statement() ddl.Statement {
	s := ddl.Statement{Action: ddl.Action(w.IntN(3))}
	s.Position = w.words([]string{"CREATE", "ALTER", "DROP"}[s.Action])
	mapping := w.IntN(2) == 0
	w.words(map[bool]string{true: "USER MAPPING", false: "SERVER"}[mapping])
	if s.Action != ddl.Alter && w.IntN(2) == 0 {
		s.Lenient = true
		w.words([]string{"IF NOT EXISTS", "", "IF EXISTS"}[s.Action])
	}
	if mapping {
		w.words("FOR")
		if s.User = ddl.Public; w.IntN(4) == 0 {
			w.words("PUBLIC")
		} else {
			s.User, _ = w.name()
		}
		w.words("SERVER")
	}
	s.Server, _ = w.name()
	switch {
	case mapping:
	case s.Action == ddl.Alter:
		w.version()
	case s.Action == ddl.Create:
		if w.IntN(2) == 0 {
			w.words("TYPE")
			w.gap("'fake'")
			s.Kind = "fake"
		}
		w.version()
		w.words("FOREIGN DATA WRAPPER")
		if wrapper, _ := w.name(); s.Kind == "" {
			s.Kind = wrapper
		}
	case s.Action == ddl.Drop:
		s.Cascade = w.IntN(2) == 0
		w.words(map[bool]string{true: "CASCADE", false: "RESTRICT"}[s.Cascade])
	}
	if s.Action == ddl.Alter || s.Action == ddl.Create && w.IntN(2) == 0 {
		s.Options = w.options(s.Action)
	}
	return s
}

func (w *writer) version() {
	if w.IntN(2) == 0 {
		w.words("VERSION")
		w.gap("'1.2'")
	}
}

func (w *writer) options(action ddl.Action) (all []ddl.Option) {
	w.words("OPTIONS")
	w.gap("(")
	for i := range 1 + w.IntN(4) {
		if i > 0 {
			w.gap(",")
		}
		o := ddl.Option{}
		if action == ddl.Alter {
			o.Action = []ddl.Action{ddl.Create, ddl.Set, ddl.Drop}[w.IntN(3)]
			o.Position = w.words(map[ddl.Action]string{ddl.Create: "ADD", ddl.Set: "SET", ddl.Drop: "DROP"}[o.Action])
		}
		o.Name = fmt.Sprint("o", i) // each once
		if at := w.gap(o.Name); action != ddl.Alter {
			o.Position = at
		}
		if o.Action != ddl.Drop {
			o.Value = w.value()
		}
		all = append(all, o)
	}
	w.gap(")")
	return all
}

func TestAFaultInTheTextHasALineAndAColumn(t *testing.T) {
	for sql, want := range map[string]struct {
		line, column int
		reason       string
	}{
		"SELECT 1":                             {1, 1, "expected CREATE, ALTER or DROP"},
		"CREATE TABLE t":                       {1, 8, "expected SERVER or USER MAPPING"},
		"CREATE SERVER s\n  FOREIGN WRAPPER x": {2, 11, "expected DATA"},
		"CREATE SERVER s FOREIGN DATA WRAPPER w OPTIONS (a b)":                {1, 51, "expected the value of an option in single quotes"},
		"CREATE SERVER s FOREIGN DATA WRAPPER w OPTIONS (a 'b' c 'd')":        {1, 55, "expected )"},
		"CREATE SERVER s FOREIGN DATA WRAPPER w OPTIONS (a 'b',\n a 'd')":     {2, 2, "an option is there twice"},
		"CREATE SERVER s FOREIGN DATA WRAPPER w OPTIONS (port '1', port '2')": {1, 59, `option "port" is there twice`},
		"ALTER SERVER s OPTIONS (width '1', width '2')":                       {1, 36, `option "width" is there twice`},
		"DROP SERVER s 'é' x":                           {1, 15, "expected ;"},
		"DROP SERVER 'é', s":                            {1, 13, "expected the name of a server, found a text"},
		"DROP SERVER /* ü */ 'x":                        {1, 21, "a text has no end"},
		"\n\n  /* no end":                               {3, 3, "a comment has no end"},
		`DROP SERVER ""`:                                {1, 13, "a quoted name is empty"},
		"DROP SERVER ?":                                 {1, 13, "unexpected '?'"},
		"CREATE USER MAPPING FOR CURRENT_USER SERVER s": {1, 25, "expected the name of a local user or PUBLIC"},
		"ALTER SERVER s":                                {1, 15, "expected OPTIONS, found the end"},
		"ALTER USER MAPPING FOR a SERVER s OPTIONS (password 'secret' password 'secret two')": {1, 62, "expected )"},
	} {
		_, err := ddl.Parse(sql, known)
		var fault *ddl.Error
		require.ErrorAs(t, err, &fault, "%s", sql)
		require.Equal(t, ddl.Position{Line: want.line, Column: want.column}, fault.Position, "%s: %v", sql, err)
		require.Contains(t, fault.Reason, want.reason, "%s", sql)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestFaultsInTheTextRepeatNoSecret(t *testing.T) {
	for _, options := range []string{
		`password "hunter2"`, `password hunter2`, `password $$hunter2$$`, `password = 'hunter2'`, `password E'hunter2'`, `password 'it's hunter2'`,
		`password 'a"b' hunter2`, `password 'it's' 'hunter2'`, `password 'ab'hunter2`, `password 'hunter2`, `password "hunter2`, `password 'x'), "hunter2`, `password 'it', hunter2)`, `user 'x", "hunter2', password 'y' , "hunter2" 'z', "hunter2" 'z'`, `user ", password 'hunter2', " x`, `password 'x') hunter2`, `password 'x'); hunter2`,
	} {
		_, err := ddl.Parse(`CREATE USER MAPPING FOR ann SERVER s OPTIONS (user 'x', `+options+`)`, known)
		require.Error(t, err, options)
		require.NotContains(t, err.Error(), "hunter2", options)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("CREATE SERVER s TYPE 'fake' FOREIGN DATA WRAPPER w OPTIONS (host 'h' /* a /* b */ */, dbname 'it''s')")
	f.Add("CREATE USER MAPPING FOR \"Ann Lee\" SERVER s OPTIONS (user 'ann', password 'p;--')")
	f.Add("DROP SERVER \"a\"\"b\";;/* */--")
	f.Add("ALTER SERVER s OPTIONS (SET a 'b', DROP c)")
	f.Fuzz(func(t *testing.T, sql string) {
		statements, err := ddl.Parse(sql, known)
		if err != nil {
			var fault *ddl.Error
			if !errors.As(err, &fault) || fault.Line < 1 || fault.Column < 1 || fault.Reason == "" {
				t.Fatalf("a fault without a place: %v", err)
			}
			return
		}
		for _, s := range statements {
			if s.Server == "" || s.Line < 1 || s.Column < 1 {
				t.Fatalf("%+v", s)
			}
		}
	})
}
