package httpapi

import (
	"strings"

	"github.com/tutti-server/tutti/internal/server/httpapi/inference"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// Routes lists the paths of all endpoints, with and without the optional part.
func Routes() (paths []string) {
	shared := transport.NewShared(Settings{})
	for _, r := range routes(shared, inference.New(shared), nil) {
		head, rest, optional := strings.Cut(r.path, "[")
		part, tail, _ := strings.Cut(rest, "]")
		paths = append(paths, head+tail)
		if optional {
			paths = append(paths, head+part+tail)
		}
	}
	return paths
}
