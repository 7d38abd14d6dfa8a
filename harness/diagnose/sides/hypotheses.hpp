// The families of hypotheses, for the table in hypotheses.cpp.
#pragma once

#include "diagnose/sides/diagnose.hpp"

namespace kvcts::diagnose {

// Code that moves bytes without knowing what they are (movers.cpp).
void pieces_missing(const Scene& scene, Proposals& out);
void pieces_cut_or_long(const Scene& scene, Proposals& out);
void pieces_shifted(const Scene& scene, Proposals& out);
void pieces_in_another_region(const Scene& scene, Proposals& out);
void narrow_offsets(const Scene& scene, Proposals& out);
void pieces_of_others(const Scene& scene, Proposals& out);
void bytes_changed_on_the_way(const Scene& scene, Proposals& out);
void an_earlier_transfer(const Scene& scene, Proposals& out);
void source_changed(const Scene& scene, Proposals& out);

// Code that plans from a wrong belief (beliefs.cpp).
void other_source_blocks(const Scene& scene, Proposals& out);
void other_steps(const Scene& scene, Proposals& out);
void other_lengths(const Scene& scene, Proposals& out);
void other_block_sizes(const Scene& scene, Proposals& out);
void scales_elsewhere(const Scene& scene, Proposals& out);
void half_of_packed_rows(const Scene& scene, Proposals& out);

// Code that looks at dim 0 alone (slabs.cpp).
void another_axis_for_blocks(const Scene& scene, Proposals& out);

}  // namespace kvcts::diagnose
