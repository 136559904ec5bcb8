package elastic_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/testing/esnode"
)

// pieces are what texts are put together of: letters and digits of several
// scripts, what may stand between them, and all that emoji are made of.
var pieces = []string{
	"a", "Web", "ß", "É", "1", "42", "8.15", "東", "京", "ひ", "カ", "タ", "한", "б", "ع", "ⓐ", "ˇ", "˅", "՞",
	" ", " ", " ", " ", "-", "_", ".", ",", ":", "'", "/", "@", "#", "*", "e\u0301", "\n",
	"🦊", "👍", "❤", "☎", "★", "©", "™", "🫠", "🄀", "👍🏽", "❤\ufe0f", "👩🏽\u200d🚀", "👨\u200d👩\u200d👧\u200d👦", "🏴\U000e0067\U000e0062\U000e007f", "🏳\ufe0f\u200d🌈",
	"🇩", "🇪", "🇩🇪", "1\ufe0f\u20e3", "#\ufe0f\u20e3", "*\u20e3",
}

// What a word is has to be the same to the stores: the words of a query are looked
// for as they are, among those that Elasticsearch has made of the texts.
func TestWordsAreThoseOfElasticsearch(t *testing.T) {
	place := esnode.Shared(t)
	r := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // spread, not secret
	texts := []string{
		strings.Join(pieces, " "), "☎\ufe0e", "a\u200d🦊b", "1\u200d🦊", "🦊\u200d", "\u200d🦊", "🇩\u200d🇪 🇩\ufe0f🇪", "12\ufe0f\u20e3", "🇩🇪🏽", "x🏽 🏽-🏽", "🇪🏽", "🦊\u0301", "㊗\ufe0f〰🅰🈁",
	}
	for range 30 {
		var text strings.Builder
		for range 200 {
			text.WriteString(pieces[r.IntN(len(pieces))])
		}
		texts = append(texts, text.String())
	}
	for _, text := range texts {
		status, answer, err := place.Do(t.Context(), http.MethodPost, "/_analyze", map[string]any{"analyzer": "standard", "text": text})
		if err != nil || status != http.StatusOK {
			t.Fatalf("_analyze answers %d %s: %v", status, answer, err)
		}
		var got struct{ Tokens []struct{ Token string } }
		must(t, json.Unmarshal(answer, &got))
		var theirs []string
		for _, token := range got.Tokens {
			theirs = append(theirs, token.Token)
		}
		ours := kql.Words(text)
		if slices.Equal(ours, theirs) {
			continue
		}
		i := 0
		for i < min(len(ours), len(theirs)) && ours[i] == theirs[i] {
			i++
		}
		t.Errorf("behind %+q our words are %+q, Elasticsearch's %+q\nin %+q", theirs[max(0, i-2):i], ours[i:min(i+3, len(ours))], theirs[i:min(i+3, len(theirs))], text)
	}
}
