package conformance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// block is a part of the page: text, or a table of some kind.
type block struct {
	text string
	kind string
	rows []row
}

// row says whether a group of items works, and which markers show it.
type row struct {
	works   string // yes, partly, no
	items   []string
	title   string // the items, formatted for the page
	note    string
	markers []string
}

const fence = "```"

// parsePage parses the page's source. Fences of three backticks enclose the rows of a table, each "works | items |
// note | markers".
func parsePage(source string) ([]block, error) {
	var blocks []block
	for i, part := range strings.Split(source, fence+"table ") {
		if i > 0 {
			table, rest, ok := strings.Cut(part, "\n"+fence+"\n")
			kind, lines, _ := strings.Cut(table, "\n")
			if !ok {
				return nil, fmt.Errorf("the table '%s' has no end", kind)
			}
			b := block{kind: kind}
			for line := range strings.Lines(lines) {
				r, err := parseRow(strings.TrimSpace(line), kind)
				if err != nil {
					return nil, fmt.Errorf("table '%s': %w", kind, err)
				}
				b.rows = append(b.rows, r)
			}
			blocks = append(blocks, b)
			part = rest
		}
		blocks = append(blocks, block{text: part})
	}
	return blocks, nil
}

func parseRow(line, kind string) (row, error) {
	cells := strings.Split(line, "|")
	if len(cells) != 4 {
		return row{}, fmt.Errorf("'%s' has %d cells, expected works | items | note | markers", line, len(cells))
	}
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	r := row{works: cells[0], title: cells[1], note: cells[2], markers: strings.Fields(cells[3])}
	if !slices.Contains([]string{"yes", "partly", "no"}, r.works) {
		return row{}, fmt.Errorf("'%s' begins with '%s', expected yes, partly or no", line, r.works)
	}
	for list := range strings.SplitSeq(r.title, ";") {
		message, names, ok := strings.Cut(list, ":")
		if !ok || kind != "messages" && kind != "config" {
			r.items = append(r.items, strings.TrimSpace(list))
			continue
		}
		for name := range strings.SplitSeq(names, ",") {
			r.items = append(r.items, strings.TrimSpace(message)+"."+strings.TrimSpace(name))
		}
	}
	return r, nil
}

// tests returns the tests that show a row, sorted and without duplicates.
func (r *row) tests(shown map[string][]string) []string {
	var list []string
	for _, m := range r.markers {
		list = append(list, shown[m]...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func TestParsePage(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, source, want string }{
		{"text alone", "# Title\n", ""},
		{"a table", "```table config\nyes | M: a, b; N: c | note | x y\n```\nmore\n", ""},
		{"no end", "```table config\nyes | a | | x\n", "the table 'config' has no end"},
		{"cells", "```table config\nyes | a\n```\n", "table 'config': 'yes | a' has 2 cells, expected works | items | note | markers"},
		{"answer", "```table rpcs\nmaybe | a | | x\n```\n", "table 'rpcs': 'maybe | a | | x' begins with 'maybe', expected yes, partly or no"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			blocks, err := parsePage(tt.source)
			if got := fmt.Sprint(err); got != tt.want && (tt.want != "" || err != nil) {
				t.Fatalf("parsePage = %v, want %s", err, tt.want)
			}
			if err == nil && len(blocks) == 3 {
				if got := fmt.Sprint(blocks[1].rows[0].items); got != "[M.a M.b N.c]" {
					t.Errorf("items = %s", got)
				}
			}
		})
	}
}
