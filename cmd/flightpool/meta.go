package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flightpool/flightpool/cmd/flightpool/internal/output"
	"github.com/flightpool/flightpool/flightpool"
)

// A meta is a command of the shell itself.
type meta struct {
	name, args, help string
	run              func(s *shell, ctx context.Context, arg string) error
}

// metas are the commands; it is a function since \? lists them.
func metas() []meta {
	return []meta{
		{`\?`, "", "this list", (*shell).help},
		{`\begin`, "", "begin a transaction, as BEGIN does", sends("BEGIN")},
		{`\commit`, "", "end it: the server has stored it when this says OK", sends("COMMIT")},
		{`\d`, "[TABLE]", "tables, or the columns of one", (*shell).describe},
		{`\format`, "[FORMAT]", "table, csv, json, arrow or parquet", (*shell).setFormat},
		{`\i`, "FILE", "run a script", (*shell).script},
		{`\o`, "[FILE]", "results go to a file, or to the screen again", (*shell).redirect},
		{`\pager`, "on|off", "long results through $PAGER, or less", (*shell).setPager},
		{`\q`, "", "leave, as Ctrl-D does", func(*shell, context.Context, string) error { return errQuit }},
		{`\rollback`, "", "undo the transaction", sends("ROLLBACK")},
		{`\route`, "auto|query|update", "how statements are sent that do not tell by their text", (*shell).setRoute},
		{`\stats`, "", "what the pool is and has done", (*shell).stats},
		{`\timing`, "[on|off]", "how long each statement takes", (*shell).setTiming},
		{`\watch`, "[SECONDS]", "the latest statement again and again (2), until Ctrl-C", (*shell).watch},
	}
}

func sends(sql string) func(*shell, context.Context, string) error {
	return func(s *shell, ctx context.Context, _ string) error { return s.statement(ctx, sql) }
}

// command runs a line that begins with a backslash.
func (s *shell) command(ctx context.Context, line string) error {
	name, arg, _ := strings.Cut(line, " ")
	all := metas()
	i := slices.IndexFunc(all, func(m meta) bool { return m.name == name })
	if i < 0 {
		return fmt.Errorf(`no command %s: \? lists them`, output.Printable(name))
	}
	return all[i].run(s, ctx, strings.TrimSuffix(strings.TrimSpace(arg), ";"))
}

func (s *shell) help(context.Context, string) error {
	for _, m := range metas() {
		s.tell("  %-25s %s", m.name+" "+m.args, m.help)
	}
	s.tell("  %-25s %s", "STATEMENT;", "may have several lines; Ctrl-C stops it on the server")
	return nil
}

// option reads an argument that is one of values, or tells the present one.
func (s *shell) option(name, arg, now string, values ...string) (string, error) {
	if arg == "" {
		s.tell("%s is %s", name, now)
		return now, nil
	}
	if !slices.Contains(values, arg) {
		return "", fmt.Errorf(`\%s takes %s`, name, strings.Join(values, ", "))
	}
	return arg, nil
}

func (s *shell) setFormat(_ context.Context, arg string) error {
	var names []string
	for _, f := range output.Formats() {
		names = append(names, string(f))
	}
	value, err := s.option("format", arg, string(s.format), names...)
	if err == nil {
		s.format = output.Format(value)
	}
	return err
}

var routes = map[string]flightpool.Route{
	"auto": flightpool.RouteAuto, "query": flightpool.RouteQuery, "update": flightpool.RouteUpdate,
}

func (s *shell) setRoute(_ context.Context, arg string) error {
	now := "auto"
	for name, r := range routes {
		if r == s.route {
			now = name
		}
	}
	value, err := s.option("route", arg, now, "auto", "query", "update")
	if err == nil {
		s.route = routes[value]
	}
	return err
}

func (s *shell) setTiming(_ context.Context, arg string) error {
	if arg == "" {
		arg = onOff(!s.timing)
		s.tell("timing is %s", arg)
	}
	value, err := s.option("timing", arg, "", "on", "off")
	if err == nil {
		s.timing = value == "on"
	}
	return err
}

func (s *shell) setPager(_ context.Context, arg string) error {
	if s.terminal == nil {
		return errors.New("results do not go to a terminal")
	}
	value, err := s.option("pager", arg, onOff(len(s.terminal.pager) > 0), "on", "off")
	if err == nil {
		s.terminal.pager = nil
		if value == "on" {
			s.terminal.pager = s.newTerminal(true).pager
		}
	}
	return err
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// redirect sends results to a file, or back to where they go without it.
func (s *shell) redirect(_ context.Context, path string) error {
	closed := s.closeOut(true)
	s.out = s.standardSink(s.terminal)
	if path == "" || closed != nil {
		return closed
	}
	file, err := fileSink(path)
	if err == nil {
		s.out = file
	}
	return err
}

// closeOut ends what results go to. As Arrow or Parquet, no file has no result.
func (s *shell) closeOut(whole bool) error {
	if whole && s.out.path != "" && s.out.results == 0 && output.Binary(s.format) {
		return errors.Join(fmt.Errorf("the file is not written: %w", errNoResult), s.out.close(false))
	}
	return s.out.close(whole)
}

func (s *shell) stats(context.Context, string) error {
	st := s.pool.Stats()
	var closed uint64
	for _, n := range st.Closed {
		closed += n
	}
	s.tell("connections: %d of at most %d, %d in use, %d idle, %d being opened", st.Total, st.MaxSize, st.InUse, st.Idle, st.Opening)
	s.tell("opened: %d (%d failed), closed: %d", st.Opens, st.OpenFailures, closed)
	s.tell("calls: %d (%d failed), repeated: %d, sessions: %d", st.Calls, st.Failures, st.Retries, st.Sessions)
	s.tell("statements stopped: %d confirmed, %d not; transactions left open and rolled back: %d", st.CancelsConfirmed, st.CancelsUnconfirmed, st.RolledBack)
	if st.UnhealthyReason != nil {
		s.tell("unhealthy since %s: %s", st.UnhealthySince.Format(time.RFC3339), lines(st.UnhealthyReason.Error()))
	}
	return nil
}

// watch runs the latest statement again and again.
func (s *shell) watch(ctx context.Context, arg string) error {
	seconds := 2.0
	if arg != "" {
		var err error
		if seconds, err = strconv.ParseFloat(arg, 64); err != nil || !(seconds > 0 && seconds < 1e6) {
			return errors.New(`\watch takes a number of seconds above 0 and below 1000000`)
		}
	}
	if s.last == "" {
		return errors.New("no statement has been run that could be repeated")
	}
	for {
		s.tell("%s, every %v s", time.Now().Format(time.RFC3339), seconds)
		if err := s.statement(ctx, s.last); err != nil {
			return err
		}
		switch err := s.pause(ctx, time.Duration(seconds*float64(time.Second))); {
		case err != nil && s.app.prompt && s.running == 0 && ctx.Err() == nil:
			return nil // as the user wants it
		case err != nil:
			return err
		}
	}
}

// pause waits, or gives the interruption that ends it.
func (s *shell) pause(ctx context.Context, d time.Duration) error {
	ctx, stop := s.interruptible(ctx)
	defer stop()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return interruption(ctx)
	}
}
