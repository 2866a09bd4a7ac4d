package testserver

import "github.com/apache/arrow-go/v18/arrow"

// statement reads a whole statement.
func (p *parser) statement() *parsed {
	st := &parsed{verb: p.peek(), key: -1}
	p.at++
	switch st.verb {
	case "SELECT":
		p.selection(st)
	case "INSERT":
		p.expect("INTO")
		st.name = p.ident()
		if p.accept("(") {
			for more := true; more; more = p.accept(",") {
				st.into = append(st.into, p.ident())
			}
			p.expect(")")
		}
		p.expect("VALUES")
		for more := true; more; more = p.accept(",") {
			st.rows = append(st.rows, p.tuple())
		}
	case "UPDATE":
		st.name = p.ident()
		p.expect("SET")
		st.set = p.ident()
		p.expect("=")
		st.items = []item{p.value()}
		p.whereClause(st)
	case "DELETE":
		p.expect("FROM")
		st.name = p.ident()
		p.whereClause(st)
	case "CREATE":
		p.creation(st)
	case "DROP":
		p.expect("TABLE")
		st.lenient = p.accept("IF", "EXISTS")
		st.name = p.ident()
	case "SET":
		st.name = p.ident()
		if !p.accept("=") {
			p.expect("TO")
		}
		st.items = []item{p.value()}
	case "RESET", "SHOW", "USE":
		st.name = p.ident()
	default:
		p.transaction(st)
	}
	return st
}

func (p *parser) transaction(st *parsed) {
	switch st.verb {
	case "BEGIN", "COMMIT":
		p.accept("TRANSACTION")
	case "START":
		p.expect("TRANSACTION")
		st.verb = "BEGIN"
	case "ROLLBACK":
		p.accept("TRANSACTION")
		if p.accept("TO") {
			p.accept("SAVEPOINT")
			st.verb, st.name = "ROLLBACK TO", p.ident()
		}
	case "RELEASE":
		p.accept("SAVEPOINT")
		st.name = p.ident()
	case "SAVEPOINT":
		st.name = p.ident()
	default:
		p.at = 0
		p.fail()
	}
}

func (p *parser) selection(st *parsed) {
	switch {
	case p.accept("*"):
	case p.accept("COUNT", "(", "*", ")"):
		st.count = true
	default:
		for more := true; more; more = p.accept(",") {
			it := p.value()
			if p.accept("AS") {
				it.name = p.ident()
			}
			st.items = append(st.items, it)
		}
		return
	}
	p.expect("FROM")
	st.source, st.name = "table", p.ident()
	if p.accept("(") {
		st.source = st.name
		for more := true; more; more = p.accept(",") {
			st.args = append(st.args, p.value())
		}
		p.expect(")")
		return
	}
	p.whereClause(st)
}

func (p *parser) whereClause(st *parsed) {
	if p.accept("WHERE") {
		st.where = &equals{column: p.ident()}
		p.expect("=")
		st.where.value = p.value()
	}
}

func (p *parser) tuple() []item {
	var row []item
	p.expect("(")
	for more := true; more; more = p.accept(",") {
		row = append(row, p.value())
	}
	p.expect(")")
	return row
}

func (p *parser) creation(st *parsed) {
	if p.accept("SCHEMA") {
		st.verb, st.name = "CREATE SCHEMA", p.ident()
		return
	}
	st.verb = "CREATE TABLE"
	st.temp = p.accept("TEMP") || p.accept("TEMPORARY")
	p.expect("TABLE")
	st.lenient = p.accept("IF", "NOT", "EXISTS")
	st.name = p.ident()
	if p.accept("AS") {
		st.as = &parsed{verb: "SELECT", key: -1}
		p.expect("SELECT")
		p.selection(st.as)
		return
	}
	p.expect("(")
	for more := true; more; more = p.accept(",") {
		f := arrow.Field{Name: p.ident(), Nullable: true}
		var ok bool
		if f.Type, ok = columnType(p.ident()); !ok {
			p.fail()
		}
		if p.accept("PRIMARY", "KEY") {
			st.key, f.Nullable = len(st.columns), false
		}
		st.columns = append(st.columns, f)
	}
	p.expect(")")
}
