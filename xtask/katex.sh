#!/bin/sh
# mdbook-katex, and what its MathML needs besides. Markdown reads the text between the tags: the copies of the sources are removed,
# accents and bars are written as entities. Browsers ignore `mathvariant`: letters are those of Unicode. `ln x` gets its space.
mdbook-katex "$@" | sed -E \
    -e 's/<annotation [^>]*>[^<]*<\/annotation>//g' -e 's/>~</>\&#126;</g' -e 's/>\|</>\&#124;</g' \
    -e 's/ mathvariant=\\"double-struck\\">E</>𝔼</g' -e 's/ mathvariant=\\"double-struck\\">R</>ℝ</g' \
    -e 's/ mathvariant=\\"double-struck\\">1</>𝟙</g' -e 's/ mathvariant=\\"bold\\">1</>𝟏</g' \
    -e 's/ mathvariant=\\"script\\">B</>ℬ</g' -e 's/ mathvariant=\\"script\\">D</>𝒟</g' \
    -e 's/ mathvariant=\\"script\\">H</>ℋ</g' -e 's/ mathvariant=\\"script\\">L</>ℒ</g' \
    -e 's/ mathvariant=\\"script\\">N</>𝒩</g' \
    -e 's/<mo>⁡<\/mo>(<m[^o]|<mover)/<mspace width=\\".17em\\"><\/mspace>\1/g'
