package elastic_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/testing/kit/esnode"
)

// pieces are the parts that texts are made of: letters and digits of several scripts,
// separators, and the components of emoji.
var pieces = []string{
	"a", "Web", "ß", "É", "1", "42", "8.15", "東", "京", "ひ", "カ", "タ", "한", "б", "ع", "ⓐ", "ˇ", "˅", "՞",
	" ", " ", " ", " ", "-", "_", ".", ",", ":", "'", "/", "@", "#", "*", "e\u0301", "\n",
	"🦊", "👍", "❤", "☎", "★", "©", "™", "🫠", "🄀", "👍🏽", "❤\ufe0f", "👩🏽\u200d🚀", "👨\u200d👩\u200d👧\u200d👦", "🏴\U000e0067\U000e0062\U000e007f", "🏳\ufe0f\u200d🌈",
	"🇩", "🇪", "🇩🇪", "1\ufe0f\u20e3", "#\ufe0f\u20e3", "*\u20e3",
}

// The words of a query are not analysed again, so kql.Words must split texts exactly as
// Elasticsearch's standard analyzer does.
func TestWordsEqualTokensOfStandardAnalyzer(t *testing.T) {
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
			t.Fatalf("_analyze: status %d: %s: %v", status, answer, err)
		}
		var got struct{ Tokens []struct{ Token string } }
		must(t, json.Unmarshal(answer, &got))
		var tokens []string
		for _, token := range got.Tokens {
			tokens = append(tokens, token.Token)
		}
		words := kql.Words(text)
		if slices.Equal(words, tokens) {
			continue
		}
		i := 0
		for i < min(len(words), len(tokens)) && words[i] == tokens[i] {
			i++
		}
		t.Errorf("after %+q, kql.Words returns %+q, Elasticsearch %+q\nin %+q", tokens[max(0, i-2):i], words[i:min(i+3, len(words))], tokens[i:min(i+3, len(tokens))], text)
	}
}
