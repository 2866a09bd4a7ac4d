package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/flightpool/flightpool/flightpool/registry/ddl"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// ParseServerDDL reads statements as ddl.Parse does. The first fault is a *ddl.Error
// with its line and column; it repeats the names of a server's options, and none that
// is not known.
func ParseServerDDL(sql string) ([]ddl.Statement, error) {
	return ddl.Parse(sql, func(option string) bool {
		_, ok := options.Find(option)
		return ok
	})
}

// ApplyDDL carries statements out, in their order, and stops at the first that
// fails; the error is a *ddl.Error where the text is wrong, and tells the line and
// column of the statement that failed. See ParseServerDDL.
func (r *Registry) ApplyDDL(ctx context.Context, sql string) error {
	statements, err := ParseServerDDL(sql)
	if err != nil {
		return err
	}
	for _, s := range statements {
		if err := r.Apply(ctx, s); err != nil {
			return at(s, err)
		}
	}
	return nil
}

// at tells where a statement that has failed begins, unless err tells the very place.
func at(s ddl.Statement, err error) error {
	if wrong := (*ddl.Error)(nil); errors.As(err, &wrong) {
		return err
	}
	return &statementError{s, err}
}

// A statementError is why a statement could not be carried out.
type statementError struct {
	of  ddl.Statement
	err error
}

func (e *statementError) Error() string {
	why := strings.TrimPrefix(e.err.Error(), "registry: ") // it is said once
	return fmt.Sprintf("registry: line %d, column %d: %s", e.of.Line, e.of.Column, why)
}

func (e *statementError) Unwrap() error { return e.err }

// Apply carries one statement out. What it changes is in use when it returns nil;
// connections are made in the background.
func (r *Registry) Apply(ctx context.Context, s ddl.Statement) error {
	switch {
	case s.User != "":
		return r.alter(ctx, s, func(d *ServerDefinition) error { return applyToMapping(d, s) })
	case s.Action == ddl.Alter:
		return r.alter(ctx, s, func(d *ServerDefinition) error { return applyToServer(d, s) })
	case s.Action == ddl.Drop:
		err := r.Unregister(ctx, s.Server)
		if s.Lenient && errors.Is(err, ErrUnknownServer) {
			return nil
		}
		return err
	}
	d := ServerDefinition{Name: s.Server, Kind: s.Kind}
	if err := applyToServer(&d, s); err != nil {
		return err
	}
	err := r.Register(ctx, d)
	if s.Lenient && errors.Is(err, ErrExists) {
		return nil
	}
	return err
}

// alter changes a copy of a server's definition and puts it in its place, with nobody
// in between. It starts from what its owner wrote, not from the defaults that are in
// use.
func (r *Registry) alter(ctx context.Context, s ddl.Statement, change func(d *ServerDefinition) error) error {
	unlock, err := r.changeLocks.lock(ctx, s.Server)
	if err != nil {
		return err
	}
	defer unlock()
	server, err := r.server(s.Server)
	if err != nil {
		return err
	}
	d := server.written.Load().clone()
	if err := change(&d); err != nil {
		return err
	}
	return r.update(ctx, d)
}

// applyToServer changes the options of a definition.
func applyToServer(d *ServerDefinition, s ddl.Statement) error {
	d.Options = maps.Clone(d.Options) // once, for all of them
	var faults []error
	named := map[string]bool{}
	for _, o := range s.Options {
		err := allowed(s.Action, o, d.has(o.Name), d.isSurelyUnset(o.Name))
		switch named[o.Name] = true; {
		case named[optionSynonyms[o.Name]]:
			err = fmt.Errorf("%s: there is %s too, which is the same", o.Name, optionSynonyms[o.Name])
		case err != nil:
		case o.Action == ddl.Drop:
			d.dropOption(o.Name)
		default:
			err = d.setOption(o.Name, o.Value)
		}
		if err != nil {
			faults = append(faults, &ddl.Error{Position: o.Position, Reason: err.Error()})
		}
	}
	return errjoin.Join(faults...)
}

// allowed refuses to add what is there, and to set or drop what is not. The options of
// a CREATE are new in any case.
func allowed(action ddl.Action, o ddl.Option, has, lacks bool) error {
	switch {
	case action != ddl.Alter:
	case o.Action == ddl.Create && has:
		return fmt.Errorf("%s: is set already; use SET", o.Name)
	case o.Action == ddl.Set && lacks:
		return fmt.Errorf("%s: is not set; use ADD", o.Name)
	case o.Action == ddl.Drop && lacks:
		return fmt.Errorf("%s: is not set", o.Name)
	}
	return nil
}

// applyToMapping changes a user mapping of a definition. d is a copy; one that is left
// half changed by a fault is dropped.
func applyToMapping(d *ServerDefinition, s ddl.Statement) error {
	m, exists := d.Users[s.User]
	switch {
	case s.Action == ddl.Create && exists:
		if s.Lenient {
			return nil
		}
		return fmt.Errorf("%w: user mapping for %q", ErrExists, s.User)
	case s.Action != ddl.Create && !exists:
		if s.Lenient {
			return nil
		}
		return fmt.Errorf("%w for %q", ErrNoMapping, s.User)
	case s.Action == ddl.Drop:
		delete(d.Users, s.User)
		return nil
	}
	m.Options = maps.Clone(m.Options)
	var faults []error
	named := map[string]bool{}
	for _, o := range s.Options {
		err := allowed(s.Action, o, m.has(o.Name), !m.has(o.Name))
		if named[o.Name] = true; named["user"] && named["username"] {
			err = errors.New("user and username are the same: leave out one of them")
			delete(named, o.Name)
		}
		if err != nil {
			faults = append(faults, &ddl.Error{Position: o.Position, Reason: err.Error()})
			continue
		}
		switch o.Name { // a dropped one has no value
		case "user", "username":
			m.User = o.Value
		case "password":
			m.Password = o.Value
		default:
			if m.Options == nil {
				m.Options = map[string]string{}
			}
			m.Options[o.Name] = o.Value
			if o.Action == ddl.Drop {
				delete(m.Options, o.Name)
			}
		}
	}
	if err := errjoin.Join(faults...); err != nil {
		return err
	}
	d.Users[s.User] = m
	return nil
}

// has says whether an option is set.
func (m UserMapping) has(name string) bool {
	switch name {
	case "user", "username":
		return m.User != ""
	case "password":
		return m.Password != ""
	}
	_, ok := m.Options[name]
	return ok
}
