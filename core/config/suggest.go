package config

import "strings"

// aliases maps words of other tools to fields.
var aliases = map[string]string{
	"shape": "dims", "dtype": "data_type", "type": "data_type", "datatype": "data_type",
	"count": "num_versions", "model": "model_name", "version": "model_version",
}

// valueAliases maps data type names of other tools.
var valueAliases = map[string]string{
	"TYPE_BYTES": "TYPE_STRING", "TYPE_FLOAT": "TYPE_FP32", "TYPE_DOUBLE": "TYPE_FP64", "TYPE_HALF": "TYPE_FP16",
	"TYPE_FLOAT32": "TYPE_FP32", "TYPE_FLOAT64": "TYPE_FP64", "TYPE_FLOAT16": "TYPE_FP16", "TYPE_BFLOAT16": "TYPE_BF16",
	"TYPE_INT": "TYPE_INT32", "TYPE_LONG": "TYPE_INT64",
}

// DidYouMean returns " Did you mean ...?" with the name nearest to written, or "" if none is near.
func DidYouMean(written string, names []string) string {
	if best := nearest(written, names); best != "" {
		return " Did you mean \"" + best + "\"?"
	}
	return ""
}

// nearest returns the name that written most likely stands for, or "".
func nearest(written string, names []string) string {
	if written == "" || len(written) > maxNameSize {
		return ""
	}
	low := strings.ToLower(written)
	for _, name := range names {
		if name == aliases[low] || name == valueAliases[strings.ToUpper(written)] || name == valueAliases["TYPE_"+strings.ToUpper(written)] {
			return name
		}
	}
	most := min(max(1, len(written)/3), len(written)-1) // a name of one letter resembles every other one
	return closest(names, most, func(name string) int { return wordDistance(low, strings.ToLower(name)) })
}

// Nearest returns the name with the smallest edit distance from written, the first of several. It returns "" if all
// distances exceed most.
func Nearest(written string, names []string, most int) string {
	return closest(names, most, func(name string) int {
		if d := len(written) - len(name); d > most || -d > most {
			return most + 1
		}
		return distance(written, name)
	})
}

// closest returns the first name with the smallest distance up to most, or "".
func closest(names []string, most int, edits func(name string) int) string {
	best, least := "", most+1
	for _, name := range names {
		if d := edits(name); d < least {
			best, least = name, d
		}
	}
	return best
}

// maxNameSize bounds the names that are compared. No field name is longer.
const maxNameSize = 64

// wordDistance is the edit distance between two names. A name that is a whole word at the start or end of the other
// has distance 1.
func wordDistance(a, b string) int {
	for _, pair := range [2][2]string{{a, b}, {b, a}} {
		if len(pair[0]) > 2 && (strings.HasPrefix(pair[1], pair[0]+"_") || strings.HasSuffix(pair[1], "_"+pair[0])) {
			return 1
		}
	}
	return distance(a, b)
}

// distance is the Levenshtein distance between two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, last+1, row[j]+1)
		}
	}
	return row[len(b)]
}
