package script

import "github.com/apache/arrow-go/v18/arrow"

// statement reads a whole statement.
func (p *parser) statement() *parsed {
	st := &parsed{verb: p.Peek(), key: -1}
	p.At++
	switch st.verb {
	case "SELECT":
		p.selection(st)
	case "INSERT":
		p.Expect("INTO")
		st.name = p.Ident()
		if p.Accept("(") {
			for more := true; more; more = p.Accept(",") {
				st.into = append(st.into, p.Ident())
			}
			p.Expect(")")
		}
		p.Expect("VALUES")
		for more := true; more; more = p.Accept(",") {
			st.rows = append(st.rows, p.tuple())
		}
		if p.Accept("RETURNING") {
			st.returning = p.Ident()
		}
	case "UPDATE":
		st.name = p.Ident()
		p.Expect("SET")
		st.set = p.Ident()
		p.Expect("=")
		st.items = []item{p.value()}
		p.whereClause(st)
	case "DELETE":
		p.Expect("FROM")
		st.name = p.Ident()
		p.whereClause(st)
	case "CREATE":
		p.creation(st)
	case "ALTER":
		p.addition(st)
	case "DROP":
		p.Expect("TABLE")
		st.lenient = p.Accept("IF", "EXISTS")
		st.name = p.Ident()
	case "SET":
		st.own = p.Accept("SESSION")
		st.name = p.Ident()
		if !p.Accept("=") {
			p.Expect("TO")
		}
		st.items = []item{p.value()}
	case "RESET":
		st.own = p.Accept("SESSION")
		st.name = p.Ident()
	case "SHOW", "USE":
		st.name = p.Ident()
	default:
		p.transaction(st)
	}
	return st
}

func (p *parser) transaction(st *parsed) {
	switch st.verb {
	case "BEGIN", "COMMIT":
		p.Accept("TRANSACTION")
	case "START":
		p.Expect("TRANSACTION")
		st.verb = "BEGIN"
	case "ROLLBACK":
		p.Accept("TRANSACTION")
		if p.Accept("TO") {
			p.Accept("SAVEPOINT")
			st.verb, st.name = "ROLLBACK TO", p.Ident()
		}
	case "RELEASE":
		p.Accept("SAVEPOINT")
		st.name = p.Ident()
	case "SAVEPOINT":
		st.name = p.Ident()
	default:
		p.At = 0
		p.Fail()
	}
}

func (p *parser) selection(st *parsed) {
	switch {
	case p.Accept("*"):
	case p.Accept("COUNT", "(", "*", ")"):
		st.count = true
	default:
		for more := true; more; more = p.Accept(",") {
			it := p.value()
			if p.Accept("AS") {
				it.name = p.Ident()
			}
			st.items = append(st.items, it)
		}
		return
	}
	p.Expect("FROM")
	st.source, st.name = "table", p.Ident()
	if p.Accept("(") {
		st.source = st.name
		for more := true; more; more = p.Accept(",") {
			st.args = append(st.args, p.value())
		}
		p.Expect(")")
		return
	}
	p.whereClause(st)
}

func (p *parser) whereClause(st *parsed) {
	if p.Accept("WHERE") {
		st.where = &equals{column: p.Ident()}
		p.Expect("=")
		st.where.value = p.value()
	}
}

func (p *parser) tuple() []item {
	var row []item
	p.Expect("(")
	for more := true; more; more = p.Accept(",") {
		row = append(row, p.value())
	}
	p.Expect(")")
	return row
}

func (p *parser) creation(st *parsed) {
	if p.Accept("SCHEMA") {
		st.verb, st.name = "CREATE SCHEMA", p.Ident()
		return
	}
	st.verb = "CREATE TABLE"
	st.temp = p.Accept("TEMP") || p.Accept("TEMPORARY")
	p.Expect("TABLE")
	st.lenient = p.Accept("IF", "NOT", "EXISTS")
	st.name = p.Ident()
	if p.Accept("AS") {
		st.as = &parsed{verb: "SELECT", key: -1}
		p.Expect("SELECT")
		p.selection(st.as)
		return
	}
	p.Expect("(")
	for more := true; more; more = p.Accept(",") {
		f := arrow.Field{Name: p.Ident(), Nullable: true}
		var ok bool
		if f.Type, ok = columnType(p.Ident()); !ok {
			p.Fail()
		}
		if p.Accept("PRIMARY", "KEY") {
			st.key, f.Nullable = len(st.columns), false
		}
		st.columns = append(st.columns, f)
	}
	p.Expect(")")
}
