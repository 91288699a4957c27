module github.com/tutti-server/tutti/internal/tokenizer/onig/testdata/regexp2test

go 1.26.0

require (
	github.com/dlclark/regexp2/v2 v2.12.0
	github.com/tutti-server/tutti v0.0.0
)

replace github.com/tutti-server/tutti => ../../../../..
