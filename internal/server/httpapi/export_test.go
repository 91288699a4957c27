package httpapi

import "strings"

// Routes lists the paths of every endpoint, with and without the optional part.
func Routes() (paths []string) {
	for _, r := range routes() {
		head, rest, optional := strings.Cut(r.path, "[")
		part, tail, _ := strings.Cut(rest, "]")
		paths = append(paths, head+tail)
		if optional {
			paths = append(paths, head+part+tail)
		}
	}
	return paths
}
