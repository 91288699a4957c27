package config

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// unclosed looks for a bracket or brace that is still open at the end of the text, or where another kind closes.
// The fault's position is then the opening one.
func (f *textFault) unclosed() bool {
	top := &f.open[len(f.open)-1]
	ends := strings.TrimSpace(string(f.text[f.at:])) == ""
	switch {
	case top.list && (ends || f.text[f.at] == '}'):
		f.hint = fmt.Sprintf(". The list of '%s'%s has no closing ']'", top.field, f.from(top.offset))
		f.at, f.fix = top.offset, "close the list with ']'"
	case ends && len(f.open) > 1:
		f.openMessage(len(f.open) - 1)
	default:
		return false
	}
	return true
}

// openMessage reports that a message is not closed.
func (f *textFault) openMessage(i int) {
	begins := f.open[i].begins
	f.hint = fmt.Sprintf(". '%s'%s has no closing '}'", f.open[i-1].field, f.from(begins))
	f.at, f.fix = begins, "close it with '}'"
}

// from returns a position as " at line:column".
func (f *textFault) from(offset int) string {
	at := positionOf(f.text, offset)
	return fmt.Sprintf(" at %d:%d", at.line, at.column)
}

// inOuter looks for an unknown field in the enclosing messages: a closing brace is probably missing before it.
func (f *textFault) inOuter(name string) {
	for i := len(f.open) - 2; i >= 0; i-- {
		desc := f.open[i].desc
		if desc == nil || desc.Fields().ByTextName(name) == nil {
			continue
		}
		around := "the configuration"
		if i > 0 {
			around = "'" + f.open[i-1].field + "' around it"
		}
		f.openMessage(i + 1)
		f.hint = fmt.Sprintf(" '%s' is a field of %s%s", name, around, f.hint)
		return
	}
}

// messageExpected explains the syntax of a message if a scalar value stands in its place.
func (f *textFault) messageExpected() bool {
	fd := f.scope.descriptor()
	if fd == nil || !f.scope.value || fd.Kind() != protoreflect.MessageKind {
		return false
	}
	f.fix = "write " + f.scope.field + " { ... }"
	f.code, f.hint = WrongType, fmt.Sprintf(". '%s' is a message", f.scope.field)
	return true
}
