module github.com/tutti-server/tutti/internal/tokenizer/onig/testdata/regexp2test

go 1.26.0

require (
	github.com/dlclark/regexp2/v2 v2.12.0
	github.com/tutti-server/tutti v0.0.0
)

require golang.org/x/text v0.43.0 // indirect

replace github.com/tutti-server/tutti => ../../../../..
