// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "weft/module.h"

namespace weft {

/// Averages of parameters over the steps of a training run: average = decay average + (1 - decay)
/// parameter, as AveragedModel of PyTorch with get_ema_multi_avg_fn; the first update copies. They
/// have the layouts of the parameters and no traffic.
class WEFT_API Ema {
 public:
  /// Averages in f32, f64 for f64 parameters. std::invalid_argument unless `decay` is in [0, 1].
  explicit Ema(std::vector<NamedParameter> parameters, double decay = 0.999);
  explicit Ema(const Module& module, double decay = 0.999)
      : Ema(module.named_parameters(), decay) {}

  /// Takes the parameters as they are now, after an optimizer's step.
  void update();
  double decay() const { return decay_; }
  void set_decay(double decay);
  /// Number of updates.
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  /// The averages, by parameter; zeros before the first update. Change them in place only.
  const Tensors& averages();

  /// While it exists, the parameters are the averages; it must not outlive the Ema. Updates and
  /// optimizer steps meanwhile are lost or wrong.
  class WEFT_API Applied {
   public:
    explicit Applied(Ema& ema);
    ~Applied() { end(); }
    Applied(const Applied&) = delete;
    Applied& operator=(const Applied&) = delete;
    /// Gives the parameters their own values back.
    void end();

   private:
    Ema* ema_;
    Tensors own_;
  };
  /// std::invalid_argument before the first update, or while another one exists.
  [[nodiscard]] Applied applied() { return Applied(*this); }

 private:
  std::vector<NamedParameter> parameters_;
  double decay_;
  int64_t updates_ = 0;
  bool is_applied_ = false;
  Tensors averages_;
};

}  // namespace weft
