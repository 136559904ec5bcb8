// Command openapi writes server/api/adminapi/openapi.yaml from the operations of package adminapi and
// the comments of their types: `go generate ./server/api/adminapi` runs it.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: openapi FILE")
		os.Exit(2)
	}
	doc, err := document(filepath.Dir(os.Args[1]))
	if err == nil {
		err = os.WriteFile(os.Args[1], doc, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}
