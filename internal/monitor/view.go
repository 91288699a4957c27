package monitor

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// View is what is shown, and how.
type View struct {
	Before, After *Sample
	Problem       string // why there is no newer sample; empty for none
	Column        string // the title of the column that orders the rows
	Ascending     bool
	Filter        string
	Typing        bool // the keys go to the filter
	Top           int  // the first row that is shown
}

// The styles of lines.
const (
	Plain = iota
	Bold
	Reversed
	Red
)

// Line is a line on the terminal.
type Line struct {
	Text  string
	Style int
}

// Rows returns the rows that the view shows, in order.
func (v *View) Rows() []Row {
	rows := Filter(Rows(v.Before, v.After), v.Filter)
	Sort(rows, v.Column, !v.Ascending)
	return rows
}

const keysLine = "q quit   arrows: up/down scroll, left/right sort   r reverse   / filter"

// Lines lays the view out for a terminal of a size: never more lines, and none that is wider. In a small terminal the rows go
// before the lines around them, and the less important columns are left out.
func (v *View) Lines(width, height int) []Line {
	if width <= 0 || height <= 0 {
		return nil
	}
	rows := v.Rows()
	table := v.table(rows, width)
	var head, foot []Line
	if height >= 4 {
		head = append(head, Line{joinParts(Totals(v.Before, v.After, rows), width), Bold})
	}
	switch {
	case v.Problem != "" && height >= 2:
		foot = append(foot, Line{v.Problem, Red})
	case (v.Typing || v.Filter != "") && height >= 3:
		cursor := ""
		if v.Typing {
			cursor = "_"
		}
		foot = append(foot, Line{"filter: " + v.Filter + cursor, Bold})
	case height >= 6:
		foot = append(foot, Line{keysLine, Plain})
	}
	if height >= 3 {
		head = append(head, Line{table[0], Reversed})
	}
	space := height - len(head) - len(foot)
	v.Top = max(0, min(v.Top, len(rows)-space))
	body := []Line{}
	for i := v.Top; i < len(rows) && len(body) < space; i++ {
		style := Plain
		if rows[i].Errors > 0 || rows[i].State != "READY" {
			style = Red
		}
		body = append(body, Line{table[i+1], style})
	}
	if len(rows) == 0 && space > 0 {
		text := "no models"
		if v.Filter != "" {
			text = "no model matches the filter"
		}
		body = append(body, Line{text, Plain})
	}
	lines := slices.Concat(head, body, foot)
	for i := range lines {
		lines[i].Text = cut(lines[i].Text, width)
	}
	return lines
}

// table returns the lines of the table: the heading and the rows, with the columns that fit.
func (v *View) table(rows []Row, width int) []string {
	cells, all := Table(rows), columns()
	wide := make([]int, len(all))
	for _, row := range cells {
		for c, cell := range row {
			wide[c] = max(wide[c], utf8.RuneCountInString(cell))
		}
	}
	for i := range all {
		if all[i].title == v.Column {
			wide[i] = max(wide[i], len(v.Column)+1) // for the arrow
			cells[0][i] += map[bool]string{true: "^", false: "v"}[v.Ascending]
		}
	}
	shown := fitting(all, wide, width)
	lines := make([]string, len(cells))
	for i, row := range cells {
		var b strings.Builder
		for n, c := range shown {
			space := strings.Repeat(" ", max(0, wide[c]-utf8.RuneCountInString(row[c])))
			if n == 0 {
				b.WriteString(row[c] + space)
			} else {
				b.WriteString("  " + space + row[c])
			}
		}
		lines[i] = b.String()
	}
	return lines
}

// fitting returns the columns that fit. The first one is always shown.
func fitting(all []column, wide []int, width int) []int {
	var shown []int
	for i := range all {
		shown = append(shown, i)
	}
	total := func() (n int) {
		for _, c := range shown {
			n += wide[c] + 2
		}
		return n - 2
	}
	for len(shown) > 1 && total() > width {
		last := slices.MaxFunc(shown, func(a, b int) int { return all[a].weight - all[b].weight })
		shown = slices.DeleteFunc(shown, func(c int) bool { return c == last })
	}
	return shown
}

// joinParts joins the parts that fit.
func joinParts(parts []string, width int) string {
	text := parts[0]
	for _, p := range parts[1:] {
		if utf8.RuneCountInString(text)+3+utf8.RuneCountInString(p) <= width {
			text += "   " + p
		}
	}
	return text
}

// cut cuts a text off at a width.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width])
}
