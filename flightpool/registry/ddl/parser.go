package ddl

import (
	"fmt"
	"slices"
	"strings"
)

// Parse reads statements as SQL/MED has them, separated by semicolons:
//
//	CREATE SERVER [IF NOT EXISTS] name [TYPE 'kind'] [VERSION 'text']
//	    FOREIGN DATA WRAPPER wrapper [OPTIONS (option 'value', …)]
//	ALTER SERVER name [VERSION 'text'] OPTIONS ([ADD | SET | DROP] option ['value'], …)
//	DROP SERVER [IF EXISTS] name, … [CASCADE | RESTRICT]
//	CREATE USER MAPPING [IF NOT EXISTS] FOR {user | PUBLIC} SERVER name [OPTIONS (…)]
//	ALTER USER MAPPING FOR {user | PUBLIC} SERVER name OPTIONS (…)
//	DROP USER MAPPING [IF EXISTS] FOR {user | PUBLIC} SERVER name
//
// Names are folded to lower case unless they are in double quotes. Comments are
// -- and /* */. A list of servers is as many statements. ADD is for options that
// are not set, SET and DROP for those that are. The text has to be UTF-8. The
// first fault is an *Error with its line and column.
//
// known says of which options an error may repeat the name; nil: of none but the
// user, the password and where a server is.
func Parse(sql string, known func(option string) bool) ([]Statement, error) {
	if err := checkUTF8(sql); err != nil {
		return nil, err
	}
	p := &parser{lexer: lexer{rest: sql, at: Position{1, 1}}, known: known}
	p.advance()
	var all []Statement
	for p.err == nil {
		for p.accept(";") {
			continue
		}
		if p.err != nil || p.token.kind == end {
			break
		}
		s := p.statement()
		if p.err == nil && p.token.kind != end {
			p.expect(";")
		}
		if p.err == nil {
			all = append(append(all, s), p.more...)
		}
		p.more = nil
	}
	if p.err != nil {
		return nil, p.err
	}
	return all, nil
}

// parser has one token in hand. After the first fault nothing moves any more.
type parser struct {
	lexer lexer
	known func(option string) bool
	token token
	err   error
	more  []Statement // of the statement in hand, for the other servers of its list
}

func (p *parser) advance() {
	if p.err == nil {
		var err error
		if p.token, err = p.lexer.next(); err != nil {
			p.err = err
		}
	}
}

func (p *parser) fail(wanted string) {
	if p.err != nil {
		return
	}
	p.err = &Error{p.token.at, "expected " + wanted + ", found " + p.token.described()}
}

// accept takes a keyword or mark if it is next.
func (p *parser) accept(value string) bool {
	if p.err != nil || p.token.value != value || p.token.kind != word && p.token.kind != mark {
		return false
	}
	p.advance()
	return true
}

// action takes one of the keywords if it is next.
func (p *parser) action(words map[string]Action) (Action, bool) {
	if a, ok := words[p.token.value]; ok && p.accept(p.token.value) {
		return a, true
	}
	return 0, false
}

// expect takes keywords and marks that must be next.
func (p *parser) expect(values ...string) {
	for _, v := range values {
		if !p.accept(v) {
			p.fail(strings.ToUpper(v))
			return
		}
	}
}

func (p *parser) name(what string) string {
	if p.err != nil || p.token.kind != word && p.token.kind != quoted {
		p.fail(what)
		return ""
	}
	v := p.token.value
	p.advance()
	return v
}

func (p *parser) text(what string) string {
	if p.err != nil || p.token.kind != text {
		p.fail(what + " in single quotes")
		return ""
	}
	v := p.token.value
	p.advance()
	return v
}

func (p *parser) statement() Statement {
	s := Statement{Position: p.token.at}
	var ok bool
	if s.Action, ok = p.action(map[string]Action{"create": Create, "alter": Alter, "drop": Drop}); !ok {
		p.fail("CREATE, ALTER or DROP")
		return s
	}
	if p.accept("user") {
		p.expect("mapping")
		p.mapping(&s)
	} else if p.accept("server") {
		p.server(&s)
	} else {
		p.fail("SERVER or USER MAPPING")
	}
	return s
}

func (p *parser) lenient(s *Statement) {
	if s.Action == Alter || !p.accept("if") {
		return
	}
	if s.Action == Create {
		p.expect("not")
	}
	p.expect("exists")
	s.Lenient = true
}

func (p *parser) server(s *Statement) {
	p.lenient(s)
	s.Server = p.name("the name of a server")
	switch s.Action {
	case Create:
		if p.accept("type") {
			s.Kind = p.text("a type")
		}
		p.version()
		p.expect("foreign", "data", "wrapper")
		if wrapper := p.name("the name of a foreign data wrapper"); s.Kind == "" {
			s.Kind = wrapper
		}
		p.options(s)
	case Alter:
		p.version()
		if !p.options(s) {
			p.fail("OPTIONS")
		}
	default:
		names := []string{}
		for p.accept(",") {
			names = append(names, p.name("the name of a server"))
		}
		defer func() {
			for _, name := range names {
				other := *s
				other.Server = name
				p.more = append(p.more, other)
			}
		}()
		if s.Cascade = p.accept("cascade"); !s.Cascade {
			p.accept("restrict")
		}
	}
}

// version reads what no server has a use for.
func (p *parser) version() {
	if p.accept("version") {
		p.text("a version")
	}
}

func (p *parser) mapping(s *Statement) {
	p.lenient(s)
	p.expect("for")
	if p.token.kind == word && slices.Contains([]string{"user", "current_user", "current_role"}, p.token.value) {
		p.fail("the name of a local user or PUBLIC")
	}
	if p.token.kind == quoted && p.token.value == Public {
		p.fail("PUBLIC without quotes, or the name of a local user, which this cannot be")
	}
	public := p.token.kind == word && p.token.value == "public"
	if s.User = p.name("the name of a local user"); public {
		s.User = Public
	}
	p.expect("server")
	s.Server = p.name("the name of a server")
	if s.Action != Drop && !p.options(s) && s.Action == Alter {
		p.fail("OPTIONS")
	}
}

// options reads OPTIONS (…) if it is next.
func (p *parser) options(s *Statement) bool {
	if !p.accept("options") {
		return false
	}
	p.expect("(")
	seen := map[string]bool{}
	for p.err == nil {
		o := Option{Position: p.token.at}
		if s.Action == Alter {
			o.Action, _ = p.action(map[string]Action{"add": Create, "set": Set, "drop": Drop}) // ADD may be left out
		}
		o.Name = p.name("the name of an option")
		if o.Action != Drop {
			o.Value = p.text("the value of " + p.optionCalled(o.Name))
		}
		if p.err == nil && seen[o.Name] {
			p.err = &Error{o.Position, p.optionCalled(o.Name) + " is there twice"}
		}
		seen[o.Name] = true
		s.Options = append(s.Options, o)
		if !p.accept(",") {
			break
		}
	}
	p.expect(")")
	return true
}

// optionCalled is what an error of the grammar calls an option: where a quote is
// missing or too many, a password is taken for a name, so that only names are repeated
// that are known.
func (p *parser) optionCalled(name string) string {
	if slices.Contains(commonOptions, name) || p.known != nil && p.known(name) {
		return fmt.Sprintf("option %q", name)
	}
	return "an option"
}

// commonOptions are those of nearly every server and user mapping.
var commonOptions = []string{"user", "username", "password", "host", "port", "dbname"}
