// Package prooffile keeps the tables of a crash proof. `go tool mage proof` runs all faults
// and has them written to PROOF.md beside the test. `go tool mage test` counts all faults,
// runs a part of them, and compares the tables with that file.
package prooffile

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Name is the name of the file in the folder of the test.
const Name = "PROOF.md"

// Variable names the environment variable with the path of the file to write. If it is not
// set, the tables are compared.
const Variable = "MUSTER_PROOF"

// Whole reports whether all faults run.
func Whole() bool { return os.Getenv(Variable) != "" }

// WriteOrCompare writes the tables of a whole proof, and prints them. Those of a part are
// compared with what was written last.
func WriteOrCompare(tables string) error {
	if Whole() {
		fmt.Print(tables)
		return os.WriteFile(os.Getenv(Variable), []byte(tables), 0o644)
	}
	written, err := os.ReadFile(Name)
	if err != nil {
		return err
	}
	if string(written) != tables {
		return fmt.Errorf("%s differs from this run: run `go tool mage proof`, read what has changed, and commit it\n%s", Name, difference(string(written), tables))
	}
	return nil
}

// difference lists the lines that only one of two texts has.
func difference(written, now string) string {
	var b strings.Builder
	for _, side := range []struct{ sign, text, other string }{{"-", written, now}, {"+", now, written}} {
		other := strings.Split(side.other, "\n")
		for line := range strings.SplitSeq(side.text, "\n") {
			if !slices.Contains(other, line) {
				fmt.Fprintf(&b, "%s %s\n", side.sign, line)
			}
		}
	}
	return b.String()
}
