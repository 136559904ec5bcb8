// Command crd writes packaging/release/kubernetes/crd.yaml, the CustomResourceDefinition of objects of
// kind Fleet, from the specification of the admin API: `go tool mage fmt` runs it. The descriptions
// of fields are those of the specification, so that they exist once.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: crd FILE")
		os.Exit(2)
	}
	doc, err := definition()
	if err == nil {
		err = os.WriteFile(os.Args[1], doc, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crd:", err)
		os.Exit(1)
	}
}
