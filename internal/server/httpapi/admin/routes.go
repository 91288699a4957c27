package admin

import (
	"net/http"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// Routes responds with the state of a model's splits, canaries and shadows, and 404 for an unknown model.
func (s *Service) Routes(_ http.ResponseWriter, _ *http.Request, p transport.Path) (any, error) {
	c, ok := s.Catalog.(infer.RouteCatalog)
	if !ok {
		return nil, status.Errorf(status.Unsupported, "this server does not route requests")
	}
	version, err := infer.ParseVersion(p.Version)
	if err != nil {
		return nil, err
	}
	routes, err := c.Routes(p.Model, version)
	if err != nil && status.CodeOf(err) == status.InvalidArg {
		return nil, status.Errorf(status.NotFound, "%s", status.Text(err))
	}
	return routes, err
}
