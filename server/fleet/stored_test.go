package fleet

import (
	"encoding/json"
	"strings"
	"testing"
)

// What is accepted takes no more in a document than it is said to.
func TestStoredSizeIsThatOfTheDocument(t *testing.T) {
	t.Parallel()
	base, err := (&Agent{ID: "a"}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"x", "<", "&", "é", "\u2028", "\xff", `\\`, "\u202e"} {
		for _, n := range []int{1_000, MaxStoredReport / 6, MaxStoredReport / 3, MaxStoredReport} {
			raw := json.RawMessage(`["` + strings.Repeat(text, n) + `"]`)
			doc, err := (&Agent{ID: "a", Components: raw}).Encode()
			if err != nil {
				t.Fatal(err)
			}
			size := len(doc) - len(base) - len(`,"components":`)
			if refused := CheckStored("components", raw); (refused != nil) != (size > MaxStoredReport) {
				t.Errorf("%d times %q takes %d bytes in the document: %v", n, text, size, refused)
			}
		}
	}
}
