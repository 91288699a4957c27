package monitor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"
)

// Options configure Run.
type Options struct {
	Interval time.Duration
	View     View      // the first view; Run sets its samples
	Terminal tcell.Tty // nil for the terminal of the process
	// Explain adds the probable reason to an error of a sample; nil for none.
	Explain func(error) error
}

// taken is a sample, or the error in its place.
type taken struct {
	sample *Sample
	err    error
}

// screen is a view on a terminal.
type screen struct {
	tcell.Screen
	view    View
	explain func(error) error
	lost    time.Time // when the samples began to fail
}

// Run shows a server until a key or ctx ends it. It fails when the first sample fails; later errors are shown.
func Run(ctx context.Context, src *Source, o *Options) error {
	first, err := src.Sample(ctx)
	if err != nil {
		return err
	}
	s := &screen{view: o.View, explain: o.Explain}
	s.view.Before, s.view.After = first, first
	if o.Terminal != nil {
		s.Screen, err = tcell.NewTerminfoScreenFromTty(o.Terminal)
	} else {
		s.Screen, err = tcell.NewScreen()
	}
	if err == nil {
		err = s.Init()
	}
	if err != nil {
		return fmt.Errorf("the terminal cannot be used: %w; --once prints a table", err)
	}
	defer s.Fini()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	samples := make(chan taken)
	go poll(ctx, src, o.Interval, samples)
	for {
		s.draw()
		select {
		case <-ctx.Done():
			return nil
		case t := <-samples:
			s.update(t)
		case ev, open := <-s.EventQ():
			if !open || s.handle(ev) {
				return nil
			}
		}
	}
}

// poll takes samples until ctx is done.
func poll(ctx context.Context, src *Source, every time.Duration, to chan<- taken) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		sample, err := src.Sample(ctx)
		select {
		case <-ctx.Done():
			return
		case to <- taken{sample, err}:
		}
	}
}

// update shows a sample, or its error beside the last one.
func (s *screen) update(t taken) {
	if t.err == nil {
		s.view.Before, s.view.After, s.view.Problem, s.lost = s.view.After, t.sample, "", time.Time{}
		return
	}
	if s.lost.IsZero() {
		s.lost = time.Now()
	}
	if s.explain != nil {
		t.err = s.explain(t.err)
	}
	s.view.Problem = fmt.Sprintf("no new figures for %v: %s", time.Since(s.lost).Round(time.Second), clean(t.err.Error()))
}

func (s *screen) draw() {
	s.Clear()
	width, height := s.Size()
	for y, line := range s.view.Lines(width, height) {
		style := tcell.StyleDefault
		switch line.Style {
		case Bold:
			style = style.Bold(true)
		case Reversed:
			style = style.Reverse(true)
			line.Text += strings.Repeat(" ", max(0, width-len(line.Text)))
		case Red:
			style = style.Foreground(color.Red)
		}
		s.PutStrStyled(0, y, line.Text, style)
	}
	s.Show()
}

// handle handles a key or a new size. It returns true for the end.
func (s *screen) handle(ev tcell.Event) bool {
	switch ev := ev.(type) {
	case *tcell.EventResize:
		s.Sync()
	case *tcell.EventKey:
		if s.view.Typing {
			return s.typed(ev)
		}
		return s.pressed(ev)
	}
	return false
}

// typed handles a key while the filter is typed.
func (s *screen) typed(ev *tcell.EventKey) bool {
	v := &s.view
	switch ev.Key() { //nolint:exhaustive // other keys have no meaning
	case tcell.KeyCtrlC:
		return true
	case tcell.KeyEsc:
		v.Filter, v.Typing = "", false
	case tcell.KeyEnter:
		v.Typing = false
	case tcell.KeyBackspace, tcell.KeyBackspace2:
		if r := []rune(v.Filter); len(r) > 0 {
			v.Filter = string(r[:len(r)-1])
		}
	case tcell.KeyRune:
		v.Filter += clean(ev.Str())
	}
	return false
}

// pressed handles a key.
func (s *screen) pressed(ev *tcell.EventKey) bool {
	v := &s.view
	_, height := s.Size()
	switch ev.Key() { //nolint:exhaustive // other keys have no meaning
	case tcell.KeyCtrlC:
		return true
	case tcell.KeyUp:
		v.Top--
	case tcell.KeyDown:
		v.Top++
	case tcell.KeyPgUp:
		v.Top -= height / 2
	case tcell.KeyPgDn:
		v.Top += height / 2
	case tcell.KeyHome:
		v.Top = 0
	case tcell.KeyLeft:
		s.move(-1)
	case tcell.KeyRight:
		s.move(1)
	case tcell.KeyEsc:
		v.Filter = ""
	case tcell.KeyRune:
		switch ev.Str() {
		case "q", "Q":
			return true
		case "r":
			v.Ascending = !v.Ascending
		case "/":
			v.Typing = true
		}
	}
	return false
}

// move orders the rows by another column.
func (s *screen) move(by int) {
	names := Columns()
	i := slices.Index(names, s.view.Column)
	s.view.Column = names[(i+by+len(names))%len(names)]
}
