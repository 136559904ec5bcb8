// Command crashlooper stands in a package where muster-agent should: a release
// that answers every question asked of the program before it runs, and dies each
// time it does run, as one does whose configuration or libraries are wrong.
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
