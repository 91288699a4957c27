package cli

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
)

const (
	shortElements = 6  // the most elements of a shortened tensor
	shortRunes    = 60 // the most characters of a shortened text
)

// abbreviate returns the type, the shape and the first elements of a tensor.
func abbreviate(t *client.Tensor) string {
	return fmt.Sprintf("%s %s %s", t.DType, brackets(t.Shape, len(t.Shape)), strings.ReplaceAll(shortData(t), "\n", `\n`))
}

func shortData(t *client.Tensor) string {
	switch t.DType {
	case tensor.Bytes:
		list, err := t.Strings()
		if err != nil {
			return err.Error()
		}
		texts := make([]string, len(list))
		for i, s := range list {
			texts[i] = shortText(s)
		}
		return brackets(texts, shortElements)
	case tensor.FP32:
		list, _ := client.Values[float32](t)
		texts := make([]string, len(list))
		for i, x := range list {
			texts[i] = strconv.FormatFloat(float64(x), 'g', 4, 32)
		}
		return brackets(texts, shortElements)
	case tensor.Int32:
		list, _ := client.Values[int32](t)
		return brackets(list, shortElements)
	case tensor.Int64:
		list, _ := client.Values[int64](t)
		return brackets(list, shortElements)
	default:
		return fmt.Sprintf("%d bytes", len(t.Data))
	}
}

// shortText quotes a text, or returns the size of binary data.
func shortText(s string) string {
	if !utf8.ValidString(s) {
		return fmt.Sprintf("(%d bytes)", len(s))
	}
	if r := []rune(s); len(r) > shortRunes {
		s = string(r[:shortRunes]) + "..."
	}
	return strconv.Quote(s)
}

// brackets formats the first elements of a list, at most most.
func brackets[T any](list []T, most int) string {
	var b strings.Builder
	b.WriteString("[")
	for i, x := range list {
		if i > 0 {
			b.WriteString(",")
		}
		if i == most {
			fmt.Fprintf(&b, " ... %d in all", len(list))
			break
		}
		fmt.Fprint(&b, x)
	}
	return b.String() + "]"
}
