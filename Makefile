SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

.PHONY: generate check-generate
generate: ## Write the Go code of proto/
	go -C tools run ./protogen

check-generate: ## Fail when the Go code of proto/ is not what generate writes
	go -C tools run ./protogen -check
