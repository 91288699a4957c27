package replay

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/tutti-server/tutti/internal/table"
	"github.com/tutti-server/tutti/internal/tensordiff"
)

// Write prints the differences of the first step of each request, what failed, and the numbers of requests.
func (p *Report) Write(w io.Writer) error {
	rows := [][]string{{"CAPTURE", "MODEL", "STEP", "TENSOR", "ELEMENT", "CAPTURED", "REPLAYED", "DIFFERENT", "ABSOLUTE", "RELATIVE", "LATER STEPS"}}
	for _, res := range p.Results {
		rows = append(rows, res.rows()...)
	}
	if len(rows) > 1 {
		table.Left(w, rows)
	}
	for _, res := range p.Results {
		if res.Error != "" {
			if _, err := fmt.Fprintf(w, "%s: failed: %s\n", plain(filepath.Base(res.File)), plain(res.Error)); err != nil {
				return err
			}
		}
	}
	compared, unknown := p.Compared, 0
	if compared == ComparedSteps {
		compared = "tensors of every step"
	}
	for _, res := range p.Results {
		unknown += res.Unknown
	}
	if unknown > 0 {
		compared += fmt.Sprintf(", of %d tensors type and shape only", unknown)
	}
	requests := "requests"
	if p.Requests == 1 {
		requests = "request"
	}
	_, err := fmt.Fprintf(w, "%d %s: %d equal, %d different, %d failed (compared: %s)\n", p.Requests, requests, p.Equal, p.Distinct, p.Failed, compared)
	return err
}

// rows returns the rows of a table for the differences of the first step.
func (res *Result) rows() (rows [][]string) {
	later := []string{}
	for i := range res.Differences {
		d := &res.Differences[i]
		if d.Step == res.Step || d.Kind == KindStatus {
			rows = append(rows, append([]string{"", ""}, d.cells()...))
		} else if d.Step != "" && !slices.Contains(later, d.Step) {
			later = append(later, d.Step)
		}
	}
	if len(rows) > 0 {
		rows[0][0], rows[0][1] = filepath.Base(res.File), res.Model
		rows[0][len(rows[0])-1] = strings.Join(later, ", ")
	}
	for _, row := range rows {
		for i := range row {
			row[i] = plain(row[i])
		}
	}
	return rows
}

// cells returns the row of a difference, from the step to the empty cell of later steps.
func (d *Difference) cells() []string {
	name, element, elements := d.Tensor, d.Kind, ""
	if d.Response > 0 {
		name += "@" + strconv.Itoa(d.Response)
	}
	if d.Kind == tensordiff.KindValues && d.Index != nil {
		element = tensordiff.Brackets(d.Index)
		elements = fmt.Sprintf("%d of %d", d.Different, d.Elements)
	}
	return []string{d.Step, name, element, d.Want, d.Got, elements, figure(d.Absolute), figure(d.Relative), ""}
}

// plain replaces characters that control a terminal: names come from files.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, text)
}

// figure returns a difference with three digits.
func figure(x *float64) string {
	if x == nil {
		return ""
	}
	return strconv.FormatFloat(*x, 'g', 3, 64)
}
