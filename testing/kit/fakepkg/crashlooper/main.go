// Command crashlooper replaces muster-agent in a package: a release that passes every check
// of the program before it runs, and dies whenever it runs, as with a wrong configuration or
// missing libraries.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		fmt.Fprintln(os.Stderr, "muster-agent: cannot open the module table: no such file or directory")
		os.Exit(3)
	}
	fmt.Println("muster-agent, a broken release")
}
