package jsonwire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
)

func ExampleParser() {
	var p jsonwire.Parser
	if err := p.Document([]byte(`[{"n":1},{"x":[{}],"n":2}]`)); err != nil {
		fmt.Println(err)
		return
	}
	sum := uint64(0)
	err := p.Elements(func() error {
		return p.Members(func(name []byte) error {
			if string(name) != "n" {
				return p.Skip()
			}
			n, err := p.Unsigned("n")
			sum += n
			return err
		})
	})
	fmt.Println(sum, err)
	// Output: 3 <nil>
}

func ExampleWalk() {
	var p jsonwire.Parser
	p.Begin([]byte(`[[1,2],[[3]],[]]`))
	w := jsonwire.Walk{P: &p}
	for {
		ok, err := w.Next()
		if !ok || err != nil {
			fmt.Println(err)
			return
		}
		n, _ := p.Number()
		fmt.Print(n.String(), " ")
	}
	// Output: 1 2 3 <nil>
}

// TestErrors compares texts and offsets with RapidJSON's.
func TestErrors(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		"":                        "The document is empty. at 0",
		" \x00":                   "The document is empty. at 1",
		"{} x":                    "The document root must not be followed by other values. at 3",
		`{"a" 1}`:                 "Missing a colon after a name of object member. at 5",
		`{"a":1 "b":2}`:           "Missing a comma or '}' after an object member. at 7",
		`{1:2}`:                   "Missing a name for object member. at 1",
		`[1 2]`:                   "Missing a comma or ']' after an array element. at 3",
		`["\u12x4"]`:              `Incorrect hex digit after \u escape in string. at 2`,
		`["\ud800"]`:              "The surrogate pair in string is invalid. at 2",
		`["\q"]`:                  "Invalid escape character in string. at 2",
		`["a`:                     "Missing a closing quotation mark in string. at 3",
		`[1.]`:                    "Miss fraction part in number. at 3",
		`[1e]`:                    "Miss exponent in number. at 3",
		`[1e999]`:                 "Number too big to be stored in double. at 1",
		`[tru]`:                   "Invalid value. at 4",
		strings.Repeat("[", 2000): "Invalid value. at 2000",
		`[NaN,-Infinity,Inf,1.5e3,"\ud83d\ude00",{"a":[true,false,null]}]`: "",
	} {
		var p jsonwire.Parser
		got := ""
		if err := p.Validate([]byte(doc)); err != nil {
			got = strings.TrimPrefix(status.Text(err), "failed to parse the request JSON buffer: ")
		}
		if got != want {
			t.Errorf("%.40q: got %q, want %q", doc, got, want)
		}
	}
}
