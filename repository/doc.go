// Package repository serves the models of one or more folders: it finds them, loads
// their versions, compiles ensembles and hands requests to the executor of the
// wanted version. It implements infer.Inferer and infer.Catalog.
//
// Files: source.go finds models, load.go opens a version of a plain model,
// ensemble.go compiles one of an ensemble, repository.go ties them together,
// submit.go and catalog.go answer the front ends.
package repository
