package repository

import (
	"strconv"

	"github.com/tutti-server/tutti/core/infer"
)

var _ infer.RouteCatalog = (*Repository)(nil)

// Routes returns the state of the routes of a version.
func (r *Repository) Routes(name string, number int64) (*infer.Routes, error) {
	v, err := r.find(name, number)
	if err != nil {
		return nil, err
	}
	return &infer.Routes{Model: name, Version: strconv.FormatInt(v.sig.Version, 10), Routes: v.exec.Routes()}, nil
}
