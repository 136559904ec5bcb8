package access

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mtibben/confusables"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/muster-fleet/muster/server/fleet"
)

// maxName is how many characters the name of a key may have: it stands in tables, and
// beside everything that the key does.
const maxName = 100

// reserved are the names by which the server acts itself, alone or before a space and more. The
// audit trail would show what a key of such a name does as the server's, and hide it from who
// looks for what people did.
var reserved = []string{fleet.System, "rollout", "group", "automatic upgrades of policy"}

// checkName returns the name of a new key as it is stored.
func checkName(field, name string) (string, error) {
	name = strings.Join(strings.Fields(norm.NFC.String(name)), " ")
	switch {
	case name == "":
		return "", fleet.FieldError(field, "is missing: name the person or program that uses the key")
	case utf8.RuneCountInString(name) > maxName:
		return "", fleet.FieldError(field, "has more than %d characters", maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "", fleet.FieldError(field, "is %q, want printable characters only", name)
	}
	if word := mixed(name); word != "" {
		return "", fleet.FieldError(field, "has %q, which mixes the letters of several alphabets: names show who did something", word)
	}
	if by := reservedBy(name); by != "" {
		return "", fleet.FieldError(field, "is %q, and what begins with %q is done by the server itself: choose another name", name, by)
	}
	return name, nil
}

// alike are the alphabets of which many letters look alike.
var alike = []*unicode.RangeTable{unicode.Latin, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee, unicode.Coptic}

// mixed returns the first word with letters of several alphabets that look alike. Nobody writes
// such words, and skeletons do not have all of these letters.
func mixed(name string) string {
	for _, word := range strings.Fields(name) {
		var of *unicode.RangeTable
		for _, r := range word {
			for _, alphabet := range alike {
				if !unicode.Is(alphabet, r) {
					continue
				}
				if of != nil && of != alphabet {
					return word
				}
				of = alphabet
			}
		}
	}
	return ""
}

func reservedBy(name string) string {
	for _, own := range reserved {
		for i := range len(name) + 1 {
			if (i == len(name) || name[i] == ' ') && looksLike(name[:i], own) {
				return own
			}
		}
	}
	return ""
}

// looksLike reports whether people may take one name for the other: in another case, or in letters of
// another form or alphabet.
func looksLike(a, b string) bool {
	if skeleton(folded(a)) == skeleton(folded(b)) {
		return true
	}
	// What looks alike in one case is in different letters in the other: Η and H, 0 and O.
	return skeleton(folded(skeleton(a))) == skeleton(folded(skeleton(b)))
}

// folded returns a name without the differences of case and of compatible forms.
func folded(s string) string { return norm.NFKC.String(cases.Fold().String(norm.NFKC.String(s))) }

// skeleton is that of Unicode's technical standard 39: strings that look alike have one.
func skeleton(s string) string { return confusables.Skeleton(s) }

// nameTaken is the error for a name that people would take for that of a usable key.
func nameTaken(k fleet.AdminKey, name string) error {
	as := ""
	if k.Name != name {
		as = fmt.Sprintf(", which looks like %q,", name)
	}
	return fleet.Errorf(fleet.Conflict, "the key %s has the name %q%s and is in use: rotate it for another secret, revoke it, or choose another name", k.ID, k.Name, as)
}
