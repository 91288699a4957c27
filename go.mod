module tutti

go 1.26
