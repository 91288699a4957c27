package cli

import (
	"bytes"
	"context"
	"flag"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/monitor"
	"github.com/tutti-server/tutti/internal/table"
)

// topCommand is the row of the command top.
func topCommand() command {
	return command{
		name: "top", usage: "[--url URL] [--once] [-o table|json|yaml]", summary: "Watch the models of a server live",
		notes: `Rates, times and batch sizes are those of the last interval, by the server's statistics. Over HTTP the dashboard of the server adds percentiles of the stored traces, queue lengths, CPU and GPU; other servers, and gRPC, show "-" there.
Keys: q ends, the arrows up and down scroll, left and right select the column that orders the rows, r reverses the order, / filters by name, Esc removes the filter.
Without a terminal, and with --once, -o json or -o yaml, the command prints one table of one interval.`,
		examples: []string{"tutti top", "tutti top --filter text --sort P99", "tutti top --once --interval 5s -o json"},
		run:      (*program).top,
	}
}

// topSettings are the flags of top.
type topSettings struct {
	url          *string
	once         bool
	interval     time.Duration
	filter, sort string
	out          *output
}

func (s *topSettings) flags(fs *flag.FlagSet) {
	s.url = urlFlag(fs, "http://, https://, grpc:// or grpcs://")
	fs.BoolVar(&s.once, "once", false, "print one table and end")
	fs.DurationVar(&s.interval, "interval", time.Second, "time between figures")
	fs.StringVar(&s.filter, "filter", "", "`text` that names of models must have in them")
	fs.StringVar(&s.sort, "sort", "REQ/S", "`column` that orders the rows: "+strings.Join(monitor.Columns(), ", "))
	s.out = outputFlag(fs, formatTable, formatJSON, formatYAML)
}

// shortest is the shortest interval: the statistics of a server with many models take a while.
const shortest = 10 * time.Millisecond

// top shows the models of a running server.
func (p *program) top(ctx context.Context, args []string) error {
	fs := p.flags("top")
	connect, s := &connection{}, &topSettings{}
	connect.flags(fs)
	s.flags(fs)
	if _, err := arguments(fs, args, 0, 0, "only flags"); err != nil {
		return err
	}
	s.sort = strings.ToUpper(s.sort)
	switch {
	case s.interval < shortest:
		return usagef("--interval is %v, expected %v or more", s.interval, shortest)
	case !slices.Contains(monitor.Columns(), s.sort):
		return usagef("--sort is '%s', expected one of %s", s.sort, strings.Join(monitor.Columns(), ", "))
	}
	c, err := connect.dial(*s.url)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing is under way
	src := &monitor.Source{Client: c}
	if u, err := client.ParseURL(*s.url); err == nil && !isGRPC(u) {
		a, err := connect.inspector(*s.url)
		if err != nil {
			return err
		}
		src.Dashboard = func(ctx context.Context, path string) ([]byte, error) { return a.body(ctx, http.MethodGet, path, nil) }
	}
	if s.once || s.out.machine() || !isTerminal(p.stdout) || slices.Contains([]string{"", "dumb"}, os.Getenv("TERM")) {
		return connect.explain(ctx, *s.url, p.topOnce(ctx, src, s))
	}
	explain := func(err error) error { return connect.explain(ctx, *s.url, err) }
	return explain(monitor.Run(ctx, src, &monitor.Options{
		Interval: s.interval, View: monitor.View{Column: s.sort, Ascending: s.sort == "MODEL", Filter: s.filter}, Explain: explain,
	}))
}

// topOnce prints the figures of one interval.
func (p *program) topOnce(ctx context.Context, src *monitor.Source, s *topSettings) error {
	v := monitor.View{Column: s.sort, Ascending: s.sort == "MODEL", Filter: s.filter}
	var err error
	if v.Before, err = src.Sample(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(s.interval):
	}
	if v.After, err = src.Sample(ctx); err != nil {
		return err
	}
	rows := v.Rows()
	return s.out.print(p.stdout, rows, func() error {
		var b bytes.Buffer
		b.WriteString(strings.Join(monitor.Totals(v.Before, v.After, rows), "   ") + "\n\n")
		table.Right(&b, "", monitor.Table(rows))
		_, err := p.stdout.Write(b.Bytes())
		return err
	})
}
