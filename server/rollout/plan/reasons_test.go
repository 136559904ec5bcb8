package plan

import (
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
)

func TestEveryReasonHasAText(t *testing.T) {
	for _, code := range codeNames[1:] {
		r, ok := reasonWords[code]
		switch {
		case !ok:
			t.Errorf("%s has no text", code)
		case r.text == "" || strings.HasSuffix(r.text, ".") || strings.ToLower(r.text[:1]) != r.text[:1]:
			t.Errorf("%s: %q is no clause", code, r.text)
		case r.next != "" && !strings.HasSuffix(r.next, "."):
			t.Errorf("%s: %q is no sentence", code, r.next)
		}
	}
	if len(reasonWords) != len(codeNames)-1 {
		t.Errorf("%d texts for %d codes", len(reasonWords), len(codeNames)-1)
	}
	if got := ReasonText("of_next_year"); got != "of_next_year" {
		t.Errorf("an unknown code reads %q", got)
	}
	if got := ReasonText(fleet.ReasonCode("")); got != "" {
		t.Errorf("no code reads %q", got)
	}
}
